"""Advises by the condition that a message states, or the value that it refuses."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, package_of_file, pip_name
from .instruction import WHOLE, matching, quoted, speaker
from .step import Basis, Case, Step

MUST = r"must|should|needs? to|ha(?:s|ve) to"
REQUIRED = (
    r"be|have|match|equal|contain|divide|fit|come|start|end|exist|use|set|specify|provide|pass"
)
REFUSED = r"allowed|permitted|divisible|compatible|a valid|one of|in the list"
LISTED = r"available|valid|supported|allowed|possible|known"
NOT = r"(?:(?:do|is|are|does)(?:n't| not)(?: (?:currently|yet))?|cannot|can't)"
TOGETHER = r"(?:with|on|under|together with)"
THING = r"[`'\"\w.()=/-]+"
UNFIT = re.compile(
    rf"(?:^|[.:!] )(?:(?:[Cc]urrent|[Tt]his|[Tt]he) )?(?:operator |operation |op )?"
    rf"(?P<one>(?:{THING} ){{0,3}}?{THING})(?: (?:currently|yet|still|also))?"
    rf" {NOT} (?:(?:work|run|be (?:used|combined)|supported) {TOGETHER}|(?:be )?compatible with"
    r"|support) (?P<other>[`'\"\w.()=/, -]{2,50}?)"
    r"(?: (?:yet|at the moment|currently|now|because|so|when|if)\b| - |[.,;:!]|$)",
    re.IGNORECASE,
)
"""Two things that a message declares unfit for each other."""
SEVERAL = re.compile(r"multi(?:ple)?[- ]?gpu|more than one gpu|multi[- ]?device|distributed", re.I)
"""Training on several devices."""
REQUIREMENT = re.compile(
    "|".join(
        (
            rf"\b(?:{MUST})(?: not)?(?: all| both| also)? (?:{REQUIRED})\b",
            r"\b(?:is|are) (?:required|only supported|only available|mandatory)\b|\brequires? ",
            r"\bonly (?:supports?|works?|accepts?|allows?)\b",
            r"\bexpected\b.+\b(?:got|but|found|received|to)\b",
            rf"\b(?:is|are) not (?:{REFUSED})\b|\bone of [\[({{'\"]",
            r"\bnot (?:divisible|a multiple|supported (?:with|by|for|when|in|on|because))\b",
            r"\bmismatch\b",
            rf"\b(?:{LISTED}) (?:\w+ ){{0,2}}(?:are|values|options|choices|keys)\b",
            r"\b(?:cannot|can't|can not) be (?:used|set|combined|enabled|specified)\b",
            r"\b(?:cannot|can't|can not) \w+ .{1,60}\b(?:if|with|when|together)\b",
            r"\bmutually exclusive\b",
            r"\b(?:do(?:es)?n't|do(?:es)? not) (?:support|match|exist|fit)\b|\bunsupported\b",
            UNFIT.pattern,
            r"(?-i:\b[a-z]\w*=\d+\b.*\bbut\b.*\bmax_\w+=\d+)",
            r"\b(?:larger|greater|smaller|less|longer|shorter|higher|more) than\b|\bexceeds?\b",
            r"\b(?:more|fewer) \w+ .{0,30}\bthan\b",
            r"\b(?:this|it) (?:\w+ ){0,2}(?:happens?|occurs?) (?:if|when|because)\b",
        )
    ),
    re.IGNORECASE,
)
"""A sentence that states an unmet condition, or when the failure happens."""
NORM = re.compile(r"\b(?:must|should|requires?|required|only|one of)\b|\bsupported(?:: | \()", re.I)
"""Words of a message that say what is right."""
OF_VALUES = re.compile(r"values to unpack|\bindices must be integers")
"""Python's messages about values, which ask for nothing of a user's."""
NAME = re.compile(
    r"(?<![\w.-])(?:(--[\w-]+)"
    r"|`?([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`?(?= ?=| \(\d| must| should| ha(?:s|ve) to| needs? to))"
)
"""A setting's name: a flag, or words joined by underscores before a value or a requirement."""
REFUSED_VALUE = re.compile(
    r"\b(?:when|if) [`'\"]?(?P<name>[a-z]\w*_\w+)(?P<sign>=|: | = )"
    r"(?P<value>[Tt]rue|[Ff]alse)\b"
    r"|^[`'\"]?(?P<named>[a-z]\w*)=(?P<given>True|False)[`'\"]? requires\b"
)
"""A setting's value that the message declares unsupported."""
EITHER = re.compile(
    r"\bmust be (?:either |one of )?(?P<allowed>[^.;]*?),? (?:but )?(?:got|is|was):? "
    r"['\"`]?(?P<got>\w+)['\"`]?\.?$"
)
"""A check that lists the allowed values and the actual one."""
GUARDS = ("trust_remote_code", "weights_only")
"""Security switches, which no rule advises to change."""
COMPARED = (
    (
        re.compile(
            r"\bonly (?:works?|supported|available|valid|possible) (?:in|with|for|under) (?:an? )?"
            r"distributed\b|\b(?:requires?|needs?) (?:an? )?distributed (?:train|environ|launch)",
            re.I,
        ),
        (
            "Start one process for each device by a launcher (`torchrun --nproc-per-node N SCRIPT`,"
            " under Slurm one torchrun a node): this one runs alone, without ranks. "
        ),
    ),
    (
        re.compile(r"\bsame device\b|\bsingle[- ]device\b|\bdifferent devices\b", re.I),
        (
            "Have the whole model, and what it is given, on one device before this call, without a"
            " `device_map` over several. "
        ),
    ),
    (
        re.compile(
            r"\brequires? (?:an? )?(?:Volta|Turing|Ampere|Ada|Hopper|Blackwell|sm_?\d)", re.I
        ),
        "Switch it off, as this GPU is older, or take a newer GPU. ",
    ),
    (
        re.compile(r"\bmultiple of\b|\bdivisible\b|\bcan(?:not|'t) be divided\b", re.I),
        (
            "Choose sizes or a number of ranks that divide without a remainder; if the size is none"
            " of your settings, upgrade the library. "
        ),
    ),
    (
        re.compile(r"\b(?:number of|num_?) ?micro-?_?batches\b", re.I),
        "Raise the gradient accumulation (or global batch), or use fewer pipeline stages. ",
    ),
    (
        re.compile(
            r"\bcan(?:'t|not| not) .{1,60}\b(?:if|with|when|together|both)\b|\bincompatible\b"
            r"|\bnot compatible\b|mutually exclusive|\bconflicts? with\b",
            re.I,
        ),
        "Leave one of the two settings out, which exclude each other. ",
    ),
    (
        re.compile(r"\bthan (?:the )?buffer size\b", re.I),
        "Raise the buffer's size above the first number (DeepSpeed: `offload_param.buffer_size`). ",
    ),
    (
        re.compile(
            r"\b(?:longer|larger|greater|higher|more|bigger) (?:\w+ .{0,30}\b)?than\b|\bexceed",
            re.I,
        ),
        "Make what is too large smaller, or raise its limit. ",
    ),
    (
        re.compile(r"\b(?:shorter|smaller|less|lower|fewer) than\b", re.I),
        "Make what is too small larger, or lower what it is compared with. ",
    ),
)
"""Unmet conditions with remedies, the most specific first."""
IMPORTS = re.compile(r"^(?:from \S+ )?import \w|\bimport_module\(")
PRONOUNS = ("this", "it", "that", "we", "you", "they", "which", "these")
CLASHING = re.compile(
    r"\b(?P<name>[a-z]\w*)=(?P<value>\d+)\b.*?\bbut\b.*?\b(?P<limit>max_\w+)=(?P<most>\d+)\b"
)
"""A number, and its limit that is too low."""


def refused_itself(case: Case) -> Step | None:
    """Reports a check that refuses a value it lists as allowed."""
    match = EITHER.search(case.message)
    if match is None or not re.search(rf"['\"`]{match['got']}['\"`]", match["allowed"]):
        return None
    of = f" of {case.package}" if case.package else ""
    return Step(
        f"Install another release{of}, the newest or the one before: `{match['got']}` is among the"
        " values that this check allows, so the check is wrong, not the setting. It may be so on"
        " some ranks alone."
    )


def refused_value(case: Case) -> Step | None:
    """Reports a setting's value that the raising code doesn't support."""
    match = REFUSED_VALUE.search(case.message)
    if match is None or match["name"] in GUARDS:
        return None
    name, sign = match["name"] or match["named"], match["sign"] or "="
    value = match["value"] or match["given"]
    other = {"true": "False", "false": "True"}[value.lower()]
    other = other if value[0].isupper() else other.lower()
    text = f"Set `{name}{sign}{other}`: {speaker(case)} refuses this with"
    return Step(f"{text} `{name}{sign}{value}`.")


def requirement(case: Case) -> Step | None:
    """Reports a requirement of the raising code that its input doesn't meet."""
    found = matching(case, REQUIREMENT)
    if not found or OF_VALUES.search(case.message):
        return None
    limit = _raised_limit(found)
    do = limit or next(
        (do for words, do in COMPARED if words.search(" ".join(found))), _unfit(found)
    )
    every = ("".join(name) for name in NAME.findall(" ".join(found)))
    names = [name for name in every if name not in GUARDS]
    change = f"Change {', '.join(f'`{name}`' for name in dict.fromkeys(names[:3]))}. "
    change = change if names and not limit else ""
    do = f"{do}{change}" or _as_imported(case)
    if not do and len(case.message) <= WHOLE and not NORM.search(case.message):
        return None  # the first line of an answer says as much
    text = f"{do}{speaker(case)} reports: {quoted(found)}"
    yours = case.users_frame
    frame = yours or case.frame
    if frame is not None and not case.is_users and not frame.source.startswith("raise "):
        source = f", `{frame.source}`" if frame.source else ""
        where = "It was called from" if yours else "It was raised in"
        text += f" {where} line {frame.line} of {frame.file}{source}."
    return Step(text, Basis.QUOTED)


def _raised_limit(texts: list[str]) -> str:
    """The step if a sentence names a number and a limit below it; otherwise empty."""
    match = next(filter(None, map(CLASHING.search, texts)), None)
    if match is None or int(match["value"]) <= int(match["most"]):
        return ""
    return f"Raise `{match['limit']}` above {match['value']}, which is `{match['name']}`. "


def _as_imported(case: Case) -> str:
    """The step if a package refuses something while it is imported; otherwise empty."""
    owners = [(package_of_file(frame.file), frame.function) for frame in case.frames]
    package = next((name for name, _ in reversed(owners) if name != PYTHON), None)
    begun = [name for name, function in owners[1:] if function == "<module>"][-1:]
    is_importing = any(IMPORTS.search(frame.source) for frame in case.frames)
    if package in (None, MODEL_CODE) or begun != [package] or not is_importing:
        return ""
    return (
        f"Upgrade {package} (`pip install -U {pip_name(str(package))}`), or downgrade what was"
        " upgraded last beside it: it fails as it is imported, mostly as a package that it uses is"
        " newer than it knows. "
    )


def _unfit(texts: list[str]) -> str:
    """The step if a sentence declares two things unfit for each other; otherwise empty."""
    match = next(filter(None, map(UNFIT.search, texts)), None)
    if match is None:
        return ""
    first, second = match["one"].strip("`'\""), match["other"].strip("`'\" ")
    without = f"do without {first}" if first.split()[-1].lower() not in PRONOUNS else "leave it out"
    if SEVERAL.search(second):
        return f"Run on one GPU (one process, `CUDA_VISIBLE_DEVICES=0`), or {without}. "
    return f"{without[0].upper()}{without[1:]} (its option or import), or without {second}. "
