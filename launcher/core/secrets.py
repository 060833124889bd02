"""Finds secrets in command lines, environments and texts, and removes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from .secret_formats import HIDDEN, passwords_in_urls, without, without_formats
from .secret_names import LONGEST, is_secret_name, is_strong

LEAST = 6
"""Characters of a value that is looked for in texts, at least: a shorter one may be any word."""
ORDINARY = (
    *("default", "disabled", "enabled", "required", "optional", "unknown", "unlimited"),
    *("automatic", "localhost", "password", "passwd", "secret", "username", "anonymous"),
)
"""Common values, which aren't looked for in texts."""
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_ASSIGNED = re.compile(r"[-+]*([A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_KEYWORDS = {
    **dict.fromkeys(
        ("token", "key", "passw", "passphrase", "passcode", "jwt", "pwd", "secret"), ""
    ),
    **dict.fromkeys(("cred", "cookie", "signature", "webhook", "mnemonic", "authorization"), ""),
    **dict.fromkeys(("connectionstring", "connection_string", "connstr", "conn_str"), ""),
    **dict.fromkeys(("sessionid", "bearer"), ""),
    **dict.fromkeys(("pass", "auth"), r"(?![a-z])"),
    **{word: rf"(?<![a-z]{word})(?![a-z])" for word in ("pat", "sas", "otp", "totp", "sk", "ak")},
}
"""Parts of every secret's name in lower case, and patterns that must not adjoin them."""
_NAME = re.compile(r"[A-Za-z0-9_-]*")
_IN_NAMES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPES = "nrtbf"
"""Letters that JSON puts behind a backslash for a line break and the like."""
_QUOTED = re.compile(
    r"(?P<separator>(?:\\*[\"'])?\s*+[=:]\s*+|\s++|\\*[\"']\s*+,\s*+)(?P<mark>\\*[\"'])"
)
_ENDS = {
    "'": re.compile(r"(?:[^'\\\n]|\\[^\n])*+"),
    '"': re.compile(r"(?:[^\"\\\n]|\\[^\n])*+"),
}
_ESCAPED_END = re.compile(r"[^\"'\\\n]*+")
_BARE = re.compile(r"(?P<separator>=|\s{1,24}=\s{0,4}|:\s?|\s++)(?P<value>[^\s\"'`\\&,;)]{6,256}+)")
"""No more of a value is read before it is known to be a secret, so that names joined by `=` are
each read once."""
_REST = re.compile(r"[^\s\"'`\\&,;)]*+")
_HAS_DIGIT = re.compile(r"[^\s\"'`\\&,;)\d]{0,128}+\d")
_NUMBER = re.compile(r"[\d.,:/%+-]++")
_CODE = re.compile(
    r"(?:self|cls|args|cfg|config|os|settings|opts?|params|kwargs|[a-z]+_args|options|environ)\."
    r"|[A-Za-z_][\w.]{0,80}[\[(]",
)
"""A Python expression, where a value could be: `token=args.hub_token`."""
_NO_VALUE = re.compile(
    r"[\w-]{0,12}(?:\.{3}|…).*|<.*>|\[.*\]?|\{.*|\$.*|%.*|\*+|-.*|[Nn]one|[Nn]ull|[Tt]rue|[Ff]alse|x{4,}"
    r"|required|optional"
)
_END_OF_COMMAND = re.compile(r"[\"'`\\]|\s*(?:$|\n|\\|-)")
_METAVAR = re.compile(r"[A-Z_]+\]?")
_RANDOM = re.compile(r"(?=[^\d]{0,64}\d)(?=[^A-Za-z]{0,64}[A-Za-z])[A-Za-z0-9+=]{20,}+(?![\w/])")


def hidden_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, without secrets."""
    shown = []
    is_next = False
    for argument in arguments:
        assigned = _ASSIGNED.fullmatch(argument)
        if is_next and not argument.startswith("--"):
            shown.append(HIDDEN)
        elif assigned is not None and is_secret_name(assigned[1]):
            shown.append(argument[: assigned.start(2)] + HIDDEN)
        else:
            shown.append(hidden(argument))
        option = _OPTION.fullmatch(argument)
        is_next = option is not None and is_secret_name(option[1])
    return tuple(shown)


def in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """The secrets of a command line."""
    for argument, shown in zip(arguments, hidden_arguments(arguments), strict=True):
        yield from passwords_in_urls(argument)
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
        yield from passwords_in_urls(content)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from in_mapping(value)


def hidden(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without these secrets, and without what looks like others."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        # As it is, as Python shows it, and either in JSON.
        plain = {secret, repr(secret)[1:-1]}
        for spelt in plain | {json.dumps(word)[1:-1] for word in plain}:
            text = text.replace(spelt, HIDDEN)
    text = without_formats(text)
    return without(text, _values(text))


def _values(text: str) -> Iterator[tuple[int, int]]:
    """The spans of values that a name marks as secret; each name and value is read once."""
    lower = text.lower()
    if len(lower) != len(text):  # of all characters, one alone has two small ones
        lower = text.replace("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "I").lower()
    keywords = _alternatives(tuple(word for word in _KEYWORDS if word in lower))
    done = 0
    while keyword := keywords.search(lower, done):
        first = _first_of_name(text, keyword.start(), done)
        named = _NAME.match(text, keyword.end())
        assert named is not None
        last = done = named.end()
        if last - first <= LONGEST and is_secret_name(_full_name(text, first, last)):
            value = _value(text, first, last)
            if value is not None:
                done = value[1]
                yield value


@lru_cache(maxsize=256)
def _alternatives(words: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern for these keywords alone: most texts have few, and each costs time."""
    return re.compile("|".join(word + _KEYWORDS[word] for word in words) or "(?!)")


def _first_of_name(text: str, keyword: int, done: int) -> int:
    """The start of the name with a keyword here, at most `LONGEST` before it."""
    first = keyword
    least = max(done, keyword - LONGEST - 1)
    while first > least and text[first - 1] in _IN_NAMES:
        first -= 1
    if 0 < first < keyword and text[first - 1] == "\\" and text[first] in _ESCAPES:
        return first + 1
    return first


def _full_name(text: str, first: int, last: int) -> str:
    """The name, with the word before it if that is part of the name: `API key`, `backward pass`."""
    name = text[first:last]
    if name.lower() in ("key", "token", "pass") and text[first - 1 : first] == " ":
        before = text[max(0, first - 16) : first - 1].rpartition(" ")[2]
        if before.isalpha():
            return f"{before}_{name}"
    return name


def _value(text: str, first: int, last: int) -> tuple[int, int] | None:
    """The span of this name's value, if it is a secret."""
    name = text[first:last]
    if quoted := _QUOTED.match(text, last):
        return _quoted_value(text, quoted, is_option=name.startswith("-"))
    if (bare := _BARE.match(text, last)) and _is_secret_value(text, first, name, bare):
        rest = _REST.match(text, bare.end())
        assert rest is not None
        return bare.start("value"), rest.end()
    return None


def _quoted_value(text: str, quoted: re.Match[str], *, is_option: bool) -> tuple[int, int] | None:
    """A value in quotes: `name="..."`, `"name": "..."`, also in text of JSON; `'--name', '...'`."""
    if not is_option and not re.search("[=:]", quoted["separator"]):
        return None
    mark = quoted["mark"]
    match = _ENDS.get(mark, _ESCAPED_END).match(text, quoted.end())
    assert match is not None
    value = match[0]
    if len(value) < 4 or _NO_VALUE.fullmatch(value):
        return None
    return match.span()


def _is_secret_value(text: str, first: int, name: str, bare: re.Match[str]) -> bool:
    """Whether a value without quotes is a secret, not code, a number or the next word of prose."""
    value, separator = bare["value"], bare["separator"]
    if _NO_VALUE.fullmatch(value):
        return False
    is_option = name.startswith("-") and first + 1 < bare.start()
    has_digit = _HAS_DIGIT.match(value) is not None
    if is_option:
        is_last = _END_OF_COMMAND.match(text, bare.end()) and not _METAVAR.fullmatch(value)
        return separator[0] != ":" and bool(has_digit or separator == "=" or is_last)
    is_number = _NUMBER.fullmatch(value) is not None
    has_both = has_digit and not is_number
    if separator == "=":
        if _CODE.match(value) and name != name.upper():
            return False
        return name == name.upper() or (has_both if not is_strong(name) else has_digit)
    if "=" in separator or separator[0] == ":":
        if _CODE.match(value):
            return False
        return has_both if is_strong(name) else _RANDOM.match(value) is not None
    if "\n" in separator:
        return False
    return (has_both and len(value) >= 8) if is_strong(name) else bool(_RANDOM.match(value))


def searched(secrets: Iterable[str]) -> frozenset[str]:
    """Those secrets that are long enough to be looked for in texts."""
    return frozenset(
        secret
        for secret in secrets
        if len(secret) >= LEAST
        and not (secret.isdecimal() and len(secret) < 8)
        and secret.lower() not in ORDINARY
    )
