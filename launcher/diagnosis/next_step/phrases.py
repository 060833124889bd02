"""Patterns of instructions and unmet conditions in libraries' messages."""

from __future__ import annotations

import re

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
LOOKED = r"make sure|ensure|raise|check|inspect|verify|refer"
SOLVED = r"alternatively|(?:fix|solve|avoid|resolve) this"
INSTRUCTION = re.compile(
    "|".join(
        (
            r"\bdid you (?:mean|forget)\b",
            rf"\b(?:please|kindly)(?: {REQUESTED})? (?:{VERBS}|{FORMS}|{LOOKED})\b",
            rf"\b(?:try|consider|recommend(?:ed)?|suggest(?:ed)?)(?: to)? (?:{VERBS}|{FORMS})\b",
            rf"(?<!if )\b{YOU} {VERBS}\b",
            rf"(?:{BEFORE}){PLAIN} (?=[`'\"\w(<\[-])",
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
REQUIRED = r"be|have|match|equal|contain|divide|fit|come|start|end|exist|use|set"
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
            rf"\b(?:is|are) not (?:{REFUSED})\b",
            r"\bnot (?:divisible|a multiple|supported (?:with|by|for|when|in|on|because))\b",
            r"\bmismatch\b",
            rf"\b(?:{LISTED}) (?:\w+ ){{0,2}}(?:are|values|options|choices|keys)\b",
            r"\b(?:cannot|can't|can not) be (?:used|set|combined|enabled|specified)\b",
            r"\b(?:cannot|can't|can not) \w+ .{1,60}\b(?:if|with|when|together)\b",
            r"\bmutually exclusive\b",
            r"\b(?:do(?:es)?n't|do(?:es)? not) (?:support|match|exist|fit)\b|\bunsupported\b",
            UNFIT.pattern,
            r"\b(?:larger|greater|smaller|less|longer|shorter|higher|more) than\b|\bexceeds?\b",
            r"\b(?:more|fewer) \w+ .{0,30}\bthan\b",
        )
    ),
    re.IGNORECASE,
)
"""A sentence that states an unmet condition."""
FOR_DEVELOPERS = re.compile(
    "|".join(
        (
            r"report (?:this|a|an|the)|raise an issue|on github|github\.com/\S+/issues|contact",
            r"(?:file|open|submit) (?:an?|this) (?:issue|bug|ticket)",
            r"TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|TORCH(?:DYNAMO)?_(?:LOGS|VERBOSE)|NCCL_DEBUG",
            r"detect_anomaly|HYDRA_FULL_ERROR|might be asynchronously",
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
