"""Texts of logs without what tells of people, machines and projects."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath

from ..catalogue.package_names import path_in_package
from ..system.redaction import redacted

LIBRARY = re.compile(
    r"(?:^|/)(?:(?P<version>lib(?:64)?/python3[^/]*)/|(?=(?:site|dist)-packages/))(?P<rest>.+)"
)
URL = re.compile(
    r"(?P<scheme>(?<!\w)[a-z][\w+.-]{1,20}://)(?:\*\*\*@)?(?P<host>[^\s/:\"'<>?#,;()\\]++)"
    r"(?P<port>:\d{1,5})?(?P<rest>[/?#][^\s\"'<>,;()\\]*+)?"
)
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@(?:[\w-]++\.){1,20}[a-zA-Z]{2,}")
ADDRESS = re.compile(r"(?<![\w.=])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
ADDRESS_6 = re.compile(r"(?<![\w:])[0-9a-fA-F]{1,4}(?::{1,2}[0-9a-fA-F]{1,4}){2,7}(?![\w:])")
CLOCK = re.compile(r"\d{1,4}(?::\d{1,2})+")
OWN_ADDRESSES = ("127.0.0.1", "0.0.0.0")
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
DOMAIN = re.compile(
    r"(?<![\w.-])(?:[\w-]++\.){1,20}(?:com|org|net|io|ai|edu|gov|mil|info|biz|dev|tech|xyz|cloud|local"
    r"|localdomain|internal|intra|intranet|lan|corp|cluster|svc|ae|au|br|ca|ch|cn|cz|de|dk|eu|fi|fr|gr"
    r"|hk|hu|in|jp|kr|kz|mx|nl|nz|ro|ru|sa|se|sg|tr|tw|ua|uk|us|vn|za)\b(?!\(|[\w-]|\.\w)"
)
"""Without endings that are those of files (`pt`, `py`, `sh`) or names in programs (`lt`, `is`)."""
PUBLIC = re.compile(
    r"(?:.*\.)?(?:github\.com|github\.io|githubusercontent\.com|huggingface\.co|hf\.co|pytorch\.org"
    r"|python\.org|readthedocs\.io|nvidia\.com|hiascend\.com|deepspeed\.ai|wandb\.ai|torch\.ai"
    r"|modelscope\.cn|kernel\.org|stackoverflow\.com|lightning\.ai|ray\.io|pydantic\.dev|pypi\.org"
    r"|example\.com)"
)
HOST = re.compile(
    r"(?:^[ \t]*host +: |\bhost(?:name)?[=:]\s*[\"']?|MASTER_ADDR[=:]\s*|master_addr[=:]\s*"
    r"|\bnode(?:name)?[=:]\s*[\"']?|\bon host |slurmstepd-|srun: error: |pdsh@)"
    r"(?P<name>[A-Za-z][\w-]*\d[\w-]*|[A-Za-z][\w]*-[\w-]+)",
    re.MULTILINE,
)
PREFIX = re.compile(
    r"^\[?(?!(?:rank|gpu|npu|cuda|worker|step|epoch|line)[\d_-]*:)"
    r"(?P<name>[A-Za-z](?=[A-Za-z_-]*\d)[\w-]*+)(?::\d|: )",
    re.MULTILINE,
)
"""A host before a line, as of NCCL's, torchrun's and pdsh's."""
USER = re.compile(
    r"(?:/(?:home|Users|scratch|work|users)/|[A-Za-z]:\\+Users\\+|\b(?:user|USER|LOGNAME|owner)[=:]\s*)"
    r"(?P<name>[A-Za-z][\w.-]{2,})"
)
NOBODY = ("root", "user", "users", "admin", "ubuntu", "runner", "name", "shared", "project")
JOB = re.compile(
    r"(?P<before>(?:\bjob(?:[_ ]?id)?|StepId|SLURM_JOB_ID|run_id|rdzv[_-]id)[=: ]+[\"']?)"
    r"(?P<id>[\w-]*\d[\w-]*)",
    re.IGNORECASE,
)
PATH = re.compile(r"(?<![\w/\\.:~<-])(?:~|[A-Za-z]:(?=\\))?(?:[/\\]++[\w.@+=-]++){2,}+[/\\]?")
SOURCES = re.compile(r"/(?:pytorch|third_party|c10|ATen|csrc|gloo|nccl|torch_npu)/")
"""Folders of frameworks' sources in native code."""
SYSTEM = ("/usr/", "/dev/", "/proc/", "/sys/", "/etc/", "/lib/", "/lib64/", "/bin/")
KEPT = re.compile(
    r".*\.(?:py|pyx|so|c|cc|cpp|cu|h|hpp|cuh)(?:[.\d]*)|(?:pytorch_)?model.*\.(?:bin|safetensors)"
    r"|(?:adapter_)?config\.json|tokenizer.*|.*_states\.pt|latest|checkpoint-\d+|global_step\d+|bin"
    r"|special_tokens_map\.json|generation_config\.json|vocab\.json|merges\.txt|python[\d.]*"
)
"""Names of files that frameworks give, and of programs."""


def scrubbed(text: str) -> str:
    """The text with what is private replaced, the same by the same, so that it reads as before.

    Kept are what frameworks name: their files, their pages, Python's and the system's.
    """
    names = _Names()
    text = URL.sub(lambda found: _url(found, names), redacted(text))
    text = MAIL.sub(lambda found: names.of("user", found[0]) + "@example.com", text)
    people = {found["name"] for found in USER.finditer(text)} | set(_own_name())
    hosts = {found["name"] for kind in (HOST, PREFIX) for found in kind.finditer(text)}
    hosts.add(socket.gethostname())
    text = PATH.sub(lambda found: _path(found[0], names), text)
    text = DOMAIN.sub(lambda found: _domain(found[0], names), text)
    text = ADDRESS.sub(lambda found: _address(found[0], names), text)
    text = ADDRESS_6.sub(lambda found: _address_6(found[0], names), text)
    text = UUID.sub(lambda found: names.uuid(found[0]), text)
    text = JOB.sub(lambda found: found["before"] + names.number(found["id"]), text)
    for kind, known in (("host", hosts - {"localhost"}), ("user", people - set(NOBODY))):
        spelt = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
        replaced = partial(lambda kind, found: names.of(kind, found[0]), kind)
        text = re.sub(rf"(?<![\w.])(?:{spelt})(?!\w)", replaced, text) if spelt else text
    return text


class _Names:
    """What has been replaced, by kind: the same name always gets the same replacement."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = defaultdict(dict)

    def place(self, kind: str, name: str) -> int:
        """Its number among those of its kind, from 1."""
        known = self._known[kind]
        return known.setdefault(name, len(known) + 1)

    def of(self, kind: str, name: str) -> str:
        """`host2` for the second host."""
        return f"{kind}{self.place(kind, name)}"

    def number(self, name: str) -> str:
        """Another number."""
        return str(100_000 + self.place("job", name))

    def uuid(self, name: str) -> str:
        """Another UUID."""
        return f"00000000-0000-0000-0000-{self.place('uuid', name):012}"


def _own_name() -> Iterator[str]:
    """The name of the user at hand, if there is one."""
    try:
        yield getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have
        return


def _path(path: str, names: _Names) -> str:
    """A path that ends as before if a framework or the system names it so."""
    plain = path.replace("\\\\", "/").replace("\\", "/")
    if plain.startswith(SYSTEM):
        return path
    if found := SOURCES.search(plain):
        return plain[found.start() :]
    if found := LIBRARY.search(plain):
        return f"/opt/venv/{found['version'] or 'lib/python3'}/{found['rest']}"
    if (inside := path_in_package(plain)) is not None:
        return f"/opt/venv/lib/python3/site-packages/{inside}"
    if plain.startswith("/tmp/") and plain.count("/") == 2:
        return f"/tmp/{names.of('name', plain)}"
    name = PurePosixPath(plain).name
    if not KEPT.fullmatch(name):
        suffix = "".join(PurePosixPath(name).suffixes[-1:])
        name = names.of("name", name) + (suffix if suffix.isascii() else "")
    folder = names.of("folder", str(PurePosixPath(plain).parent))
    return f"/home/user/{folder}/{name}{'/' if plain.endswith('/') else ''}"


def _url(found: re.Match[str], names: _Names) -> str:
    """An address of a host or a bucket that isn't public, without what it is the address of."""
    host, rest = found["host"], found["rest"] or ""
    if PUBLIC.fullmatch(host) or host == "localhost" or ADDRESS.fullmatch(host):
        return found[0]
    shown = f"{names.of('host', host)}{'.example.com' if '.' in host else ''}"
    path = f"/{names.of('path', rest)}" if len(rest) > 1 else rest
    return f"{found['scheme']}{shown}{found['port'] or ''}{path}"


def _domain(name: str, names: _Names) -> str:
    if PUBLIC.fullmatch(name) or os.path.exists(name):  # noqa: PTH110
        return name
    return f"{names.of('host', name)}.example.com"


def _address(address: str, names: _Names) -> str:
    """An address of those for documentation (RFC 5737)."""
    if address in OWN_ADDRESSES or any(int(part) > 255 for part in address.split(".")):
        return address
    return f"192.0.2.{names.place('address', address)}"


def _address_6(address: str, names: _Names) -> str:
    """An address of those for documentation (RFC 3849); a time of day stays."""
    if CLOCK.fullmatch(address) or address.count(":") < 3:
        return address
    return f"2001:db8::{names.place('address6', address)}"
