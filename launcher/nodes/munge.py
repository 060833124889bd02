"""munge's credentials: data from a user on a host of a cluster that only this user can read.

Slurm itself authenticates with munge (slurm.conf(5), AuthType=auth/munge). Its daemon on
each host signs and encrypts with the cluster's key; libmunge asks it over a local socket
(munge_encode(3), munge_decode(3), munge_ctx(3); numbers from munge.h of 0.5.15).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import Refused, reason_of

LIBRARY = "libmunge.so.2"
CIPHER, SOCKET, READER = 0, 8, 9
"""Options of a context (`munge_opt_t`): MUNGE_OPT_CIPHER_TYPE, _SOCKET, _UID_RESTRICTION."""
AES128 = 4
"""MUNGE_CIPHER_AES128: always there, while munge's default may be set to no cipher."""
LONGEST = 1 << 16
"""Bytes of a payload that are read at most."""


@contextmanager
def _context(socket: str) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    """The library, and a context for its calls.

    Raises:
        OSError: the library isn't there.
    """
    library = ctypes.CDLL(LIBRARY)
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    context = ctypes.c_void_p(library.munge_ctx_create())
    if not context:
        raise OSError("munge has no memory left")
    try:
        if socket:
            library.munge_ctx_set(context, SOCKET, ctypes.c_char_p(os.fsencode(socket)))
        yield library, context
    finally:
        library.munge_ctx_destroy(context)


def encoded(payload: bytes, reader: int, socket: str) -> bytes | Refused:
    """A credential that only the user with the id `reader` can open.

    The `socket` is that of munged on this host; empty for munge's default.
    """
    credential = ctypes.c_char_p()
    try:
        with _context(socket) as (library, context):
            library.munge_ctx_set(context, CIPHER, ctypes.c_int(AES128))
            library.munge_ctx_set(context, READER, ctypes.c_uint32(reader))
            arguments = (ctypes.byref(credential), context, payload, len(payload))
            code = library.munge_encode(*arguments)
            result = credential.value or b""
            ctypes.CDLL(None).free(credential)
            return _failure(library, code) if code else result
    except OSError as error:
        return Refused(f"munge can't be used: {reason_of(error)}")


def decoded(credential: bytes, writer: int, socket: str) -> bytes | Refused:
    """The payload of a credential, if the user with the id `writer` has made it."""
    payload, size = ctypes.c_void_p(), ctypes.c_int()
    user, group = ctypes.c_uint32(), ctypes.c_uint32()
    try:
        with _context(socket) as (library, context):
            results = (ctypes.byref(item) for item in (payload, size, user, group))
            code = library.munge_decode(ctypes.c_char_p(credential), context, *results)
            length = min(size.value, LONGEST) if payload.value else 0
            result = ctypes.string_at(payload, length)
            ctypes.CDLL(None).free(payload)
    except OSError as error:
        return Refused(f"munge can't be used: {reason_of(error)}")
    if code:
        return _failure(library, code)
    if user.value != writer:
        return Refused("munge's credential belongs to another user")
    return result


def _failure(library: ctypes.CDLL, code: int) -> Refused:
    return Refused(f"munge: {library.munge_strerror(code).decode()}")
