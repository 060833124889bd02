"""The options that calls of argparse declare."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

from ...core.certainty import Origin
from .expressions import Evaluator
from .given import Given
from .known_values import NotKnown, Unknown
from .option import Option, value_of
from .statements import Site

SWITCHES = {"store_true": False, "store_false": True}
"""Actions of switches, with what they default to."""


def argument(call: ast.Call, site: Site, evaluator: Evaluator) -> Option | None:
    """The option, or the positional argument, that an `add_argument` declares.

    None where its name is computed.
    """
    words = [evaluator.value_or_unknown(word, site) for word in call.args]
    names = [name for word in words if (name := _name(word))]
    if not names or len(names) < len(words):
        return None
    keywords = {word.arg: word.value for word in call.keywords}
    kind, default = _kind(keywords)
    if None in keywords:
        default = Unknown()
    elif "default" in keywords:
        default = evaluator.reached_value(keywords["default"], site)
    if isinstance(default, str):
        default = value_of(Given(default, Origin.SCRIPT, ""), kind)
    if "dest" in keywords:
        dest = evaluator.value_or_unknown(keywords["dest"], site)
        names = [str(dest), *(name for name in names if name != dest)]
    return Option(tuple(names), kind, default, site.file.place(call))


def _name(word: object) -> str:
    """An option's name with underscores; letters behind words."""
    return word.lstrip("-").replace("-", "_") if isinstance(word, str) else ""


def _kind(keywords: dict[str | None, ast.expr]) -> tuple[str, Any]:
    """Of what kind an option's value is, and what it is by itself where it isn't given."""
    if "action" in keywords:
        action = ast.unparse(keywords["action"]).strip("'\"")
        is_switch = action in SWITCHES or "Boolean" in action
        return "bool" if is_switch else "str", SWITCHES.get(action)
    if "nargs" in keywords and ast.unparse(keywords["nargs"]) not in ("'?'", "None"):
        return "list", None
    kind = ast.unparse(keywords["type"]) if "type" in keywords else "str"
    if "bool" in kind.lower():
        return "bool", None
    return (kind if re.fullmatch("int|float", kind) else "str"), None


def with_default(option: Option, call: ast.Call, site: Site, evaluator: Evaluator) -> Option:
    """An option as a `set_defaults` leaves it."""
    try:
        words = evaluator.keywords(call, site) if evaluator.is_reached(site) else {}
    except NotKnown:
        words = {option.names[0]: Unknown()}
    if option.names[0] not in words:
        return option
    return replace(option, default=words[option.names[0]], source=site.file.place(call))
