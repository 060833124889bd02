"""Finds an instruction or a requirement in the message itself."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, package_of_file, pip_name
from ...core.quotation import shortened
from ...system.redaction import redacted
from .step import Basis, Case, Step, run_of

VERBS = (
    r"(?:re-?)?(?:pass|set|install|use|upgrade|update|downgrade|specify|provide|supply|add|remove"
    r"|disable|enable|increase|decrease|reduce|lower|raise|call|run|change|switch|replace|convert"
    r"|export|choose|select|rename|delete|define|compile|build|load|move|cast|wrap|configure|turn"
    r"|give|include|exclude|unset|free|create|download|log ?in|login|start|restart|register|pin"
    r"|implement|adjust|fix|correct|tokenize|pad|truncate|resize|initialize)"
)
FORMS = (
    r"(?:re-?)?(?:passing|setting|installing|using|upgrading|updating|downgrading|specifying"
    r"|providing|adding|removing|disabling|enabling|increasing|decreasing|reducing|lowering"
    r"|raising|calling|running|changing|switching|replacing|converting|choosing|loading|moving"
    r"|casting|wrapping|building)"
)
YOU = (
    r"(?:you|users?)(?: \w+ly)? (?:can|could|should|must|need to|have to|may|might|may need to"
    r"|might want to|will need to|want to|may want to)"
    r"(?: (?:either|also|instead|first|simply|try to))*"
)
PLAIN = (
    r"(?:pass|set|install|use|upgrade|update|downgrade|specify|provide|add|remove|disable|enable"
    r"|increase|decrease|reduce|lower|switch|replace|export|delete|wait|ensure|rename|pin|rerun)"
)
"""Phrases that almost always begin an instruction."""
BEFORE = r"^|[.!?:;,] |\bor |\band |\bthen |\bto \w+[^.,]{0,60}, "
REQUESTED = r"(?:either|also|first|make sure to|try to|consider)"
RESULT = r"(?:to|of|in|for|with|has|is|was|did|fail\w*|timed|errors?|finished)\b"
"""Words after a noun that could be a verb, as in "Call to ... failed"."""
SOLVED = r"alternatively|(?:fix|solve|avoid|resolve) this"
INSTRUCTION = re.compile(
    "|".join(
        (
            r"\bdid you (?:mean|forget)\b",
            rf"\b(?:please|kindly)(?: {REQUESTED})? (?!(?:note|wait|see|be|help)\b)\w+ [`'\"\w-]",
            rf"\b(?:try|consider|recommend(?:ed)?|suggest(?:ed)?)(?: to)? (?:{VERBS}|{FORMS})\b",
            r"\bconsider \w+ing\b",
            rf"(?<!if )\b{YOU} {VERBS}\b",
            rf"(?:{BEFORE}){PLAIN} (?=[`'\"\w(<\[-])",
            rf"(?:^|[.!?:;] )(?-i:(?=[A-Z])){VERBS} (?!{RESULT})(?=[`'\"\w(<\[-])",
            r"\bfor [\w -]{2,40}?,? use (?!of\b)(?=[`'\"\w(<\[-])",
            r"\b(?:make sure|be sure|ensure)\b",
            r"\b(?-i:Check|Verify) (?:that|whether|if|your)\b",
            r"\b(?:pip3?|conda|apt|apt-get) install \S",
            rf"\b(?:{SOLVED})\b.{{0,60}}\b(?:{VERBS}|{FORMS})\b",
            rf"\b{FORMS} [`'\"\w.=-]+ .{{0,60}}\b(?:may|might|can|should|will) (?:help|fix|solve)",
            r"\buse [`'\"]?[\w.=()-]+[`'\"]? instead\b",
        )
    ),
    re.IGNORECASE,
)
"""A sentence with an instruction."""
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
    rf"(?:^|[.:!] )(?P<one>(?:{THING} ){{0,3}}?{THING})(?: (?:currently|yet|still|also))?"
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
FOR_DEVELOPERS = re.compile(
    "|".join(
        (
            r"report (?:this|a|an|the)|raise an issue|on github|github\.com/\S+/issues|contact",
            r"(?:file|open|submit) (?:an?|this) (?:issue|bug|ticket)",
            r"TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|TORCH(?:DYNAMO)?_(?:LOGS|VERBOSE)|NCCL_DEBUG",
            r"detect_anomaly|HYDRA_FULL_ERROR|might be asynchronously",
            r"if you are a Facebook employee",
            r"more information|for (?:details|debugging)|to debug",
            r"see (?:the )?(?:above|stack|log|full|original)|stack ?trace|root cause",
            r"check(?:ing)? the (?:logs?|stack)|(?:can|may) be ignored|no action",
        )
    ),
    re.IGNORECASE,
)
"""A sentence about debugging or reporting, without a remedy."""
NVIDIA = re.compile(r"nvidia|\bcuda[ _-]?(?:toolkit|home|driver)|\bNCCL_|cu1[123]\d", re.IGNORECASE)
"""Advice specific to NVIDIA devices."""
NAME = re.compile(
    r"(?<![\w.-])(?:(--[\w-]+)"
    r"|`?([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`?(?= ?=| \(\d| must| should| ha(?:s|ve) to| needs? to))"
)
"""A setting's name: a flag, or words joined by underscores before a value or a requirement."""
SENTENCE = re.compile(r".+?(?:[.!?;](?=\s+[A-Z`'\"(]|\s*$)|$)", re.S)
REFUSED_VALUE = re.compile(
    r"\b(?:when|if) [`'\"]?(?P<name>[a-z]\w*_\w+)(?P<sign>=|: | = )"
    r"(?P<value>[Tt]rue|[Ff]alse)\b"
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
        "Start one process for each device by a launcher (`torchrun --nproc-per-node N SCRIPT`,"
        " under Slurm one torchrun a node): this one runs alone, without ranks. ",
    ),
    (
        re.compile(r"\bsame device\b|\bsingle[- ]device\b|\bdifferent devices\b", re.I),
        "Have the whole model, and what it is given, on one device before this call, without a"
        " `device_map` over several. ",
    ),
    (
        re.compile(
            r"\brequires? (?:an? )?(?:Volta|Turing|Ampere|Ada|Hopper|Blackwell|sm_?\d)", re.I
        ),
        "Switch it off, as this GPU is older, or take a newer GPU. ",
    ),
    (
        re.compile(r"\bmultiple of\b|\bdivisible\b|\bcan(?:not|'t) be divided\b", re.I),
        "Choose sizes or a number of ranks that divide without a remainder. ",
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
PRONOUNS = ("this", "it", "that", "we", "you", "they", "which", "these")
REFERENCE = re.compile(r"^(?:More |For |See |Read )[^:]*https?://")
CLASHING = re.compile(
    r"\b(?P<name>[a-z]\w*)=(?P<value>\d+)\b.*?\bbut\b.*?\b(?P<limit>max_\w+)=(?P<most>\d+)\b"
)
"""A number, and its limit that is too low."""
MOST = 2
"""Maximum sentences to quote."""
WHOLE = 160
"""Maximum characters of a message to quote completely."""
LONGEST = 320


INSTALLS = re.compile(r"\b(?:re-?)?(?:install|upgrade|update)\b", re.IGNORECASE)
CELL = re.compile(r"<ipython-input-|\b(?:Cell|Input) In ?\[\d+\]")
"""A frame of a notebook's cell."""
RESTART = (
    " Then restart the notebook's kernel (Colab: Runtime > Restart session), which keeps the"
    " modules that it has imported, and what they found."
)


def sentences(message: str) -> list[str]:
    """The sentences of a message, in order."""
    return [text.strip() for text in SENTENCE.findall(message) if text.strip()]


def instruction(case: Case) -> Step | None:
    """The instruction in the message."""
    matching = _matching(case, INSTRUCTION)
    is_pythons = "did you mean" in case.message.lower() and case.kind == "AttributeError"
    if not matching or is_pythons:  # Python's guess, which another version makes wrong
        return None
    again = RESTART if INSTALLS.search(" ".join(matching)) and CELL.search(case.around) else ""
    return Step(f"{_speaker(case)} advises: {quoted(matching)}{again}", Basis.QUOTED)


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
    other = {"true": "False", "false": "True"}[match["value"].lower()]
    other = other if match["value"][0].isupper() else other.lower()
    name = match["name"]
    text = f"Set `{name}{match['sign']}{other}`: {_speaker(case)} refuses this with"
    return Step(f"{text} `{name}{match['sign']}{match['value']}`.")


def requirement(case: Case) -> Step | None:
    """Reports a requirement of the raising code that its input doesn't meet."""
    matching = _matching(case, REQUIREMENT)
    if not matching or "values to unpack" in case.message:
        return None
    limit = _raised_limit(matching)
    do = limit or next(
        (do for words, do in COMPARED if words.search(" ".join(matching))), _unfit(matching)
    )
    every = ("".join(name) for name in NAME.findall(" ".join(matching)))
    names = [name for name in every if name not in GUARDS]
    change = f"Change {', '.join(f'`{name}`' for name in dict.fromkeys(names[:3]))}. "
    change = change if names and not limit else ""
    do = f"{do}{change}" or _as_imported(case)
    if not do:
        return None
    text = f"{do}{_speaker(case)} reports: {quoted(matching)}"
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
    begun = [name for name, function in owners if function == "<module>"][-1:]
    if package in (None, MODEL_CODE) or begun != [package]:
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


def _matching(case: Case, pattern: re.Pattern[str]) -> list[str]:
    """The sentences matched by the pattern, except debugging hints.

    A short message is quoted completely: its other sentences contain the values.
    """
    # Python quotes a KeyError's message as if it were a key.
    message = case.message.strip("'\"") if case.kind == "KeyError" else case.message
    foreign = NVIDIA if run_of(case).is_no_nvidia else None
    texts = [
        text
        for text in sentences(message)
        if not FOR_DEVELOPERS.search(text) and not (foreign and foreign.search(text))
    ]
    matching = [text for text in texts if pattern.search(text)]
    if matching and len(" ".join(texts)) <= WHOLE:
        return texts
    shown = matching[:MOST]
    return [text for text in texts if text in shown or _refers(text, texts, shown)]


def _refers(text: str, texts: list[str], shown: list[str]) -> bool:
    """Whether a sentence names the page on the one before, which is quoted."""
    place = texts.index(text)
    return place > 0 and texts[place - 1] in shown and REFERENCE.search(text) is not None


def quoted(texts: list[str]) -> str:
    """Sentences as one quotation, shortened and without secrets."""
    text = shortened(redacted(" ".join(texts)), LONGEST)
    return f"“{text}”" + ("" if text.endswith((".", "!", "?")) else ".")


def _speaker(case: Case) -> str:
    """Describes the source of the message."""
    if case.is_users:
        return "The script"
    return "The message" if case.package in (None, PYTHON, MODEL_CODE) else str(case.package)
