"""Which words of a command line, an environment or a text are secrets, and texts without them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

HIDDEN = "***"
"""What stands in the place of a secret."""
LEAST = 6
"""Characters of a value that is looked for in texts, at least: a shorter one may be any word."""
PLAIN = ("password", "passwd", "passphrase", "secret", "credential", "authorization", "apikey")
"""Parts of names of secrets, wherever they stand in it."""
KEYS = ("api", "access", "private", "auth", "encryption", "license")
"""Words that make a following `key` a secret; most keys are names of columns."""
PLACES = ("file", "path", "dir", "folder", "name")
"""Last words of names that say where a secret is."""
VOCABULARY = re.compile(
    r"pad(ding)?|[beu]os|unk|sep|cls|mask|image|img|video|audio|vision|patch|special|num|max|min|per|"
    r"next|first|last|stop|start|end|begin|new|extra|added|n|placeholder|additional|separator|"
    r"think(ing)?|tool|system|assistant|prompt|response|generation|reward|step"
)
"""Words that make a following `token` a piece of text: a model's tokens are no secrets."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_JOINED = re.compile(r"(?:api|auth|access|bearer|hub|hf|refresh)token")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_ASSIGNED = re.compile(r"[-+]*([A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_KEYWORDS = ("token", "jwt", "key", "passw", "passphrase", "secret", "credential")
_SPELT = "|".join(spelt for word in _KEYWORDS for spelt in (word, word.upper(), word.capitalize()))
_IN_TEXT = re.compile(
    rf"(?P<name>(?:{_SPELT})[\w-]*)"
    r"(?:(?P<quoted>(?:\\*[\"'])?\s*[=:]\s*\\*[\"'])[^\"'\\]{4,}"
    r"|(?P<bare>=|\s+)(?=[^\s\"'\\&,;)]*\d)[^\s\"'\\&,;)]{6,})"
)
"""`name="value"`, `"name": "value"`, `name=value`, `--name value`, also as text of JSON; the name
from its keyword on, since to look for its begin at every letter takes fifty times as long."""
_BEFORE = re.compile(r"[\w-]*\Z")
LONGEST = 80
"""Characters of a name before its keyword, at most."""
_URL = re.compile(r"://(?:[^/\s:@\"']*:([^/\s@\"']+)|(?<=https://)[^/\s@\"']+)@")
_HEADER = re.compile(
    r"((?:authorization|Authorization|AUTHORIZATION)\W{1,6}"
    r"|(?:bearer|Bearer|BEARER|basic|Basic|BASIC)\s+(?=[\w.~+/-]*[\d=]))"
    r"(?:(?i:bearer|basic|token)\s+)?[\w.~+/=-]{6,}"
)
"""A header, or a part of one; words that follow `basic` in prose have no digits."""
_HEADERS = ("uthorization", "UTHORIZATION", "earer", "EARER", "asic", "ASIC")
"""One of these is in every header; most texts have none, which is found out far faster."""


def is_secret_name(name: str) -> bool:
    """Whether what an option, a variable or a key of this name holds is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in PLACES:
        return False
    whole = "".join(words)
    if any(part in whole for part in PLAIN) or _JOINED.search(whole):
        return True
    pairs = list(zip(["", *words], words, strict=False))
    if any(word == "key" and before in KEYS for before, word in pairs):
        return True
    before, last = pairs[-1]
    return last in ("token", "jwt") and not VOCABULARY.fullmatch(before)


def hidden_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, without secrets."""
    found = []
    is_next = False
    for argument in arguments:
        assigned = _ASSIGNED.fullmatch(argument)
        if is_next and not argument.startswith("--"):
            found.append(HIDDEN)
        elif assigned is not None and is_secret_name(assigned[1]):
            found.append(argument[: assigned.start(2)] + HIDDEN)
        else:
            found.append(hidden(argument))
        option = _OPTION.fullmatch(argument)
        is_next = option is not None and is_secret_name(option[1])
    return tuple(found)


def in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """The secrets of a command line."""
    for argument, shown in zip(arguments, hidden_arguments(arguments), strict=True):
        yield from _in_urls(argument)
        assigned = _ASSIGNED.fullmatch(argument)
        if shown == HIDDEN:
            yield argument
        elif assigned is not None and is_secret_name(assigned[1]):
            yield assigned[2]


def in_mapping(content: object) -> Iterator[str]:
    """The secrets of an environment, or of a document of mappings and lists."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, str) and is_secret_name(str(name)):
                yield value
            else:
                yield from in_mapping(value)
    elif isinstance(content, str):
        yield from _in_urls(content)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from in_mapping(value)


def _in_urls(text: str) -> Iterator[str]:
    """The passwords in URLs."""
    return (found[1] for found in _URL.finditer(text) if found[1])


def hidden(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without these secrets, and without what looks like others.

    Args:
        text: any text, or JSON.
        secrets: those that are known.
    """
    for secret in secrets:
        # As it is, as Python shows it, and either in JSON.
        plain = {secret, repr(secret)[1:-1]}
        for spelt in plain | {json.dumps(word)[1:-1] for word in plain}:
            text = text.replace(spelt, HIDDEN)
    text = _URL.sub(f"://{HIDDEN}@", text)
    if any(word in text for word in _HEADERS):
        text = _HEADER.sub(rf"\1{HIDDEN}", text)
    return _IN_TEXT.sub(_without_value, text)


def _without_value(found: re.Match[str]) -> str:
    before = _BEFORE.search(found.string[max(0, found.start() - LONGEST) : found.start()])
    if not is_secret_name((before[0] if before else "") + found["name"]):
        return found[0]
    return f"{found['name']}{found['quoted'] or found['bare']}{HIDDEN}"


def searched(secrets: Iterable[str]) -> frozenset[str]:
    """Those secrets that are long enough to be looked for in texts."""
    return frozenset(
        secret
        for secret in secrets
        if len(secret) >= LEAST and not (secret.isdecimal() and len(secret) < 8)
    )
