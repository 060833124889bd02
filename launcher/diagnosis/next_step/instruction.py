"""Finds an instruction in the message itself."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, pip_name
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
FOR_DEVELOPERS = re.compile(
    "|".join(
        (
            r"report (?:this|a|an|the)|raise an issue|on github|github\.com/\S+/issues|contact",
            r"(?:file|open|submit) (?:an?|this) (?:issue|bug|ticket)",
            r"\b(?:raw_)?mutable_data\(|TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|TORCH(?:DYNAMO)?_(?:LOGS|VERBOSE)|NCCL_DEBUG",
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
SENTENCE = re.compile(r".+?(?:[.!?;](?=\s+[A-Z`'\"(]|\s*$)|$)", re.S)
REFERENCE = re.compile(r"^(?:More |For |See |Read )[^:]*https?://")
MOST = 2
"""Maximum sentences to quote."""
WHOLE = 160
"""Maximum characters of a message to quote completely."""
LONGEST = 320


INSTALLS = re.compile(r"\b(?:re-?)?(?:install|upgrade|update)\b", re.IGNORECASE)
REMOVED = re.compile(
    r"[`'\"](?P<name>[\w.]+)[`'\"].{0,40}\b(?:was|were|is|are|has been|have been) removed"
    r" (?:in|since) (?:version |release )?v?(?P<version>\d+(?:\.\d+)+)"
)
"""A name that a release has removed."""
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
    found = matching(case, INSTRUCTION)
    removed = None if case.is_users and found else REMOVED.search(case.message)
    if removed is not None:
        package = pip_name(case.package) if case.package not in (None, PYTHON) else "the package"
        return Step(
            f"Upgrade what uses `{removed['name']}`, or take {package} below"
            f" {removed['version']}, where it was removed. {speaker(case)} says:"
            f" {quoted(found or [case.message])}",
            Basis.QUOTED,
        )
    is_pythons = "did you mean" in case.message.lower() and case.kind == "AttributeError"
    if not found or is_pythons:  # Python's guess, which another version makes wrong
        return None
    again = RESTART if INSTALLS.search(" ".join(found)) and CELL.search(case.around) else ""
    return Step(f"{speaker(case)} advises: {quoted(found)}{again}", Basis.QUOTED)


def matching(case: Case, pattern: re.Pattern[str]) -> list[str]:
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
    found = [text for text in texts if pattern.search(text)]
    if found and len(" ".join(texts)) <= WHOLE:
        return texts
    shown = found[:MOST]
    return [text for text in texts if text in shown or _refers(text, texts, shown)]


def _refers(text: str, texts: list[str], shown: list[str]) -> bool:
    """Whether a sentence names the page on the one before, which is quoted."""
    place = texts.index(text)
    return place > 0 and texts[place - 1] in shown and REFERENCE.search(text) is not None


def quoted(texts: list[str]) -> str:
    """Sentences as one quotation, shortened and without secrets."""
    text = shortened(redacted(" ".join(texts)), LONGEST)
    return f"“{text}”" + ("" if text.endswith((".", "!", "?")) else ".")


def speaker(case: Case) -> str:
    """Describes the source of the message."""
    if case.is_users:
        return "The script"
    return "The message" if case.package in (None, PYTHON, MODEL_CODE) else str(case.package)
