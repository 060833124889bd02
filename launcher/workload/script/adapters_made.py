"""Whether a script's source gives its model adapters, and of which kind."""

from __future__ import annotations

import ast
import re

from ...core.certainty import Origin
from ...core.choices import Adapter
from .decisive_calls import reached_calls
from .expressions import Evaluator
from .given import Given
from .statements import Site
from .unguarded_calls import called

ADAPTING = re.compile(
    r"(get_peft_model|get_peft_config|add_adapter|inject_adapter\w*"
    r"|(wrap|convert|apply|add|inject|setup)_\w*lora\w*)$"
)
"""Functions that give a model adapters: peft's, trl's, and those of scripts that have their own."""
LORA = ("LoraConfig", "AdaLoraConfig")
LOADED = re.compile(r"Peft(Mixed)?Model\w*\.from_pretrained$")
"""peft's functions that load adapters which were saved."""


def adapter_made(evaluator: Evaluator) -> Given | None:
    """A member of `Adapter`, or empty for another kind; None where the source doesn't tell."""
    made: dict[str, Site] = {}
    skipped: list[Site] = []
    for site in evaluator.sites:
        name = called(site.node) if isinstance(site.node, ast.Call) else ""
        if name not in LORA and not _is_pefts(name, site):
            continue
        is_reached = evaluator.reaches(site)
        if is_reached is None:
            return None
        if is_reached:
            made[name] = site
        else:
            skipped.append(site)
    if len(made) > 1 or (not made and _is_adapted(evaluator)):
        return None
    frozen = None if made else _frozen(evaluator)
    if frozen is not None:
        return Given("", Origin.SCRIPT, f"{frozen.file.place(frozen.node)}: requires_grad")
    for name, site in made.items():
        source = f"{site.file.place(site.node)}: {name}"
        return Given(Adapter.LORA if name in LORA else "", Origin.SCRIPT, source)
    for site in skipped:
        return Given(Adapter.NONE, Origin.SCRIPT, f"{site.file.place(site.node)}: not reached")
    return None


def _frozen(evaluator: Evaluator) -> Site | None:
    """Where the source takes the gradients of parameters away, or may do so.

    Parts of a model that have a name, `model.vision`, have flags of their own.
    """
    for site in evaluator.sites:
        match site.node:
            case (
                ast.Call(
                    func=ast.Attribute(attr="requires_grad_", value=ast.Name()),
                    args=[ast.Constant(value=False)],
                )
                | ast.Assign(
                    targets=[ast.Attribute(attr="requires_grad", value=ast.Name())],
                    value=ast.Constant(value=False),
                )
            ) if evaluator.reaches(site) is not False:
                return site
    return None


def _is_adapted(evaluator: Evaluator) -> bool:
    """Whether a call gives the model adapters of a kind that isn't told, or may do so."""
    calls = reached_calls(evaluator, lambda name: name == "from_pretrained" or _adapts(name))
    return any(
        _adapts(called(call)) or LOADED.search(ast.unparse(call.func)) for _, call, _ in calls
    )


def _adapts(name: str) -> bool:
    return bool(ADAPTING.match(name))


def _is_pefts(name: str, site: Site) -> bool:
    """Whether a class is one of peft's configurations."""
    return name.endswith("Config") and site.file.names.get(name, ("",))[0].startswith("peft")
