"""Secrets that are known by their looks: keys of services, headers, passwords and keys in URLs.

No search goes back over a text: each pattern begins with fixed characters. What follows is either
taken, so that the next search begins behind it, or refused after a bounded number of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from urllib.parse import unquote

from .secret_names import is_secret_name

HIDDEN = "***"
"""The replacement for a secret."""

FORMATS = {
    # https://huggingface.co/docs/hub/security-tokens
    "hf_": r"[A-Za-z0-9]{20,}",
    "api_org_": r"[A-Za-z0-9]{30,}",
    # https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{20,}"),
    "github_pat_": r"\w{20,}",
    # https://docs.gitlab.com/security/tokens/#token-prefixes
    **dict.fromkeys(
        (
            *("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-"),
            *("gloas-", "glsoat-", "glffct-", "glrtr-", "GR1348941"),
        ),
        r"[\w.-]{16,}",
    ),
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
    **dict.fromkeys(("AKIA", "ASIA", "ABIA", "ACCA"), r"[A-Z0-9]{16,}"),
    "ABSK": r"[A-Za-z0-9+/]{60,}={0,2}",
    # The others are known from https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml
    # and the services' own documentation.
    "AIza": r"[\w-]{30,}",
    "ya29.": r"[\w-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "xox": r"[a-z](?:\.xox[a-z])?-[\w-]{10,}",
    "xapp-": r"\d-[\w-]{10,}",
    "sk-": r"(?=[\w-]{0,64}\d)[\w-]{20,}",
    "csk-": r"(?=[\w-]{0,64}\d)[\w-]{20,}",
    **dict.fromkeys(("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_"), r"\w{10,}"),
    "whsec_": r"[\w+/=]{20,}",
    "nvapi-": r"[\w-]{20,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-": r"[\w-]{50,}",
    "rubygems_": r"[a-f0-9]{40,}",
    **dict.fromkeys(("dckr_pat_", "dckr_oat_"), r"[\w-]{20,}"),
    "dapi": r"[a-f0-9]{32}(?:-\d)?",
    "r8_": r"[A-Za-z0-9]{30,}",
    "gsk_": r"[A-Za-z0-9]{30,}",
    "xai-": r"[A-Za-z0-9]{40,}",
    "pplx-": r"[A-Za-z0-9]{40,}",
    "tvly-": r"(?:dev-)?[A-Za-z0-9]{20,}",
    "pcsk_": r"\w{30,}",
    "rpa_": r"[A-Za-z0-9]{30,}",
    "wandb_v1_": r"\w{20,}",
    "KGAT_": r"\w{20,}",
    "lsv2_": r"[ps][tk]_\w{20,}",
    **dict.fromkeys(("pk-lf-", "sk-lf-"), r"[a-f0-9-]{20,}"),
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",
    "key-": r"[a-f0-9]{32}",
    "ms-": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "SCT": r"\d{3,8}T[A-Za-z0-9]{20,}",
    "SK": r"[0-9a-f]{32}",
    **dict.fromkeys(("hvs.", "hvb.", "hvr."), r"[\w-]{20,}"),
    **dict.fromkeys(("dp.pt.", "dp.st.", "dp.ct."), r"[\w.]{30,}"),
    **dict.fromkeys(("doo_v1_", "dop_v1_", "dor_v1_"), r"[a-f0-9]{40,}"),
    "LTAI": r"[A-Za-z0-9]{12,}",
    "AKID": r"[A-Za-z0-9]{28,}",
    **dict.fromkeys(("glsa_", "glc_"), r"[\w+/=]{20,}"),
    "ATATT3": r"[\w=-]{50,}",
    "ATCTT3": r"[\w=-]{50,}",
    "AKCp": r"[A-Za-z0-9]{60,}",
    "cmVmd": r"[A-Za-z0-9]{50,}",
    "lin_api_": r"[A-Za-z0-9]{30,}",
    "ntn_": r"[A-Za-z0-9]{30,}",
    "PMAK-": r"[a-f0-9-]{40,}",
    "pul-": r"[a-f0-9]{40}",
    "pnu_": r"[A-Za-z0-9]{30,}",
    **dict.fromkeys(("sntrys_", "sntryu_"), r"[\w+/=]{40,}"),
    **dict.fromkeys(("NRAK-", "NRII-", "NRJS-"), r"[\w-]{19,}"),
    **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_"), r"[a-fA-F0-9]{32}"),
    **dict.fromkeys(("fo1_", "fm1_", "fm2_"), r"[\w+/=-]{40,}"),
    "HRKU-": r"[\w-]{40,}",
    "tskey-": r"[\w-]{20,}",
    "EAA": r"[A-Za-z0-9]{100,}",
    "ops_eyJ": r"[\w+/=-]{60,}",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{50,}",
    "A3-": r"[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}",
    # https://datatracker.ietf.org/doc/html/rfc7519
    "eyJ": r"[\w-]{8,256}\.[\w-]{8,}(?:\.[\w-]*)?",
    # https://datatracker.ietf.org/doc/html/rfc7468
    "-----BEGIN ": r"[A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\[nr])*+(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\]*+)*+"
    r"(?:[^-]*+-----END [A-Z ]*+-----|(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{24,}+)*+)",
}
"""First characters of keys, and the patterns of the rest."""
_USER = re.compile(
    r"://(?:[^/\s:@\"']*+:(?P<password>(?:[^/\s@\"']*+@)++)|(?<=https://)(?:[^/\s@\"']++@)++)"
)
"""A name and a password in a URL; over https a name alone may be a token."""
_HOOK = re.compile(
    r"(://[^\s\"'\\<>?]{0,120}?"
    r"(?:/(?:web)?hooks?(?:b2)?/|(?<=://)hooks\.[\w.-]{1,80}/(?:services/|workflows/|triggers/|hooks/)?"
    r"|/triggers?/|api\.telegram\.org/bot|\.logic\.azure\.com[:\d]*/workflows/))"
    r"(?=[^\s\"'\\<>]{0,64}\d)[^\s\"'\\<>]{8,}"
)
"""An address to which anybody who has it may post."""
_QUERY = re.compile(r"[?&](?:amp;)?([\w.-]{2,64})=([^\s\"'\\&#<>]{4,})", re.ASCII)
_SIGNED = re.compile(r"sig|key|(?:x-(?:amz|goog)-)?(?:signature|credential|security-token)", re.I)
"""Keys of a query that suffice for access: of signed addresses, and of some webhooks."""
_HEADER = re.compile(
    r"((?:authorization|Authorization|AUTHORIZATION)"
    r"(?:[\"'\\]{1,4}\s?:\s?(?!-?\d[\d.eE+-]{0,40}\s?[,}\]])|\s?[:=]\s?)[\"'\\]{0,4}"
    r"|(?:bearer|Bearer|BEARER|basic|Basic|BASIC)\s++(?=[\w.~+/-]{0,256}?[\d=]))"
    r"(?:(?i:bearer|basic|token)\s++)?[\w.~+/=-]{6,}"
)
"""A header, or a part of one; words that follow `basic` in prose have no digits.

Numbers of a JSON document aren't headers: without them it would be invalid.
"""
_HEADERS = ("uthorization", "UTHORIZATION", "earer", "EARER", "asic", "ASIC")
"""One of these is in every header, and none in most texts, which is a fast check."""
_COOKIE = re.compile(r"([Cc]ookie: ?)(?=[^\s=;]{1,80}=)[^\n\"'\\]+")
_COMMAND = re.compile(
    r"(sshpass\s{1,4}-p\s{0,4}|curl [^\n]{0,200}?(?:-u|--user)[ =]{1,2}[\"']?[^\s:\"'\\]{1,80}:"
    r"|docker login [^\n]{0,200}?-p[ =]{1,2}|(?:wandb|swanlab) login (?:--?[a-z-]+ ){0,4}(?=\w*\d))"
    r"[^\s\"'\\]+"
)
"""Commands that take a password or a key by a short option, or by none."""
_AWS_SIGNATURE = re.compile(r"(Signature=)[0-9a-f]{40,}")


def without_formats(text: str) -> str:
    """A text without what looks like a secret."""
    if "://" in text:
        text = _USER.sub(f"://{HIDDEN}@", text)
        text = _HOOK.sub(rf"\1{HIDDEN}", text)
    if "&" in text or "?" in text:  # also of an address that lacks its begin
        text = _QUERY.sub(_without_value, text)
    if any(word in text for word in _HEADERS):
        text = _HEADER.sub(rf"\1{HIDDEN}", text)
    for word, pattern in (("ookie:", _COOKIE), ("Signature=", _AWS_SIGNATURE)):
        if word in text:
            text = pattern.sub(rf"\1{HIDDEN}", text)
    if any(word in text for word in ("sshpass", "curl ", " login ")):
        text = _COMMAND.sub(rf"\1{HIDDEN}", text)
    return without(text, _keys(text))


def _without_value(match: re.Match[str]) -> str:
    name, value = match.groups()
    if not (_SIGNED.fullmatch(name) or is_secret_name(name)):
        return match[0]
    return match[0][: -len(value)] + HIDDEN


@cache
def _format(begin: str) -> re.Pattern[str]:
    """A key's form at the edge of a word, also after a line break as JSON has it and after a color.

    Compiled on demand: all of them take 10 ms.
    """
    first = re.escape(begin)
    edge = rf"(?<![A-Za-z0-9]{first})|(?<=\\[nrtbf]{first})|(?<=[\d;\[]m{first})"
    return re.compile(f"{first}(?:{edge}){FORMATS[begin]}", re.ASCII)


def _keys(text: str) -> Iterator[tuple[int, int]]:
    """The spans of services' keys."""
    spans = [
        match.span()
        for begin in FORMATS
        if begin in text
        for match in _format(begin).finditer(text)
    ]
    end = 0
    for first, last in sorted(spans):
        if first >= end:
            end = last
            yield first, last


def without(text: str, places: Iterable[tuple[int, int]]) -> str:
    """A text without these spans, which follow each other."""
    parts = []
    end = 0
    for first, last in places:
        parts += [text[end:first], HIDDEN]
        end = last
    return "".join([*parts, text[end:]]) if parts else text


def passwords_in_urls(text: str) -> Iterator[str]:
    """The passwords in the URLs of a text, as they are written there and as they are."""
    if "://" in text:
        for match in _USER.finditer(text):
            if password := (match["password"] or "")[:-1]:
                yield from dict.fromkeys((password, unquote(password)))
