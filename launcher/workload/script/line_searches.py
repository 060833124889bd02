"""Searches the user's source files for lines that cause known failures."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...core.script import SourceLocation
from ...system import regular_files
from . import calls
from .files import tree_of
from .losses import parameter_reductions, several_backwards


@dataclass(frozen=True, slots=True)
class Search:
    """How to find lines that cause a known failure, and how to correct them.

    Attributes:
        find: returns such lines' numbers in a syntax tree.
        unless: words anywhere in the user's files that may make the lines harmless.
        only_with: words in the user's files without which the lines are harmless.
        change: patterns with replacements for such a line; the first match applies.
    """

    find: Callable[[ast.AST], Iterator[int]]
    unless: Set[str] = frozenset()
    only_with: Set[str] = frozenset()
    change: Sequence[tuple[str, str]] = ()

    def changed(self, line: str) -> str | None:
        """The corrected line; None if that can't be derived from the line alone."""
        for pattern, replacement in self.change:
            new, count = re.subn(pattern, replacement, line)
            if count:
                return new.replace("( ", "(").strip() or "(without this line)"
        return None


WITHOUT_MAP = (
    (r"""\s*device_map\s*=\s*(["']\w+["']|\{[^{}]*\})\s*,\s*""", " "),
    (r"""(,\s*)?device_map\s*=\s*(["']\w+["']|\{[^{}]*\})""", ""),
)
"""Substitutions that remove a device map with an adjacent comma."""
SEARCHES: Mapping[str, Search] = {
    "parameter_reductions": Search(parameter_reductions),
    "device_maps": Search(calls.device_maps, change=WITHOUT_MAP),
    "device_map_arguments": Search(calls.device_map_arguments, change=WITHOUT_MAP),
    "half_precision_loads": Search(
        calls.half_precision_loads,
        unless={
            "get_peft_model",
            "PeftModel",
            "LoraConfig",
            "prepare_model_for_kbit_training",
            "float",
            "float32",
            "requires_grad",
            "requires_grad_",
        },
        change=(
            (r"torch\.(float16|half)\b", "torch.float32"),
            (r"""["']float16["']""", '"float32"'),
        ),
    ),
    "fixed_devices": Search(
        calls.fixed_devices,
        unless={"CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"},
        only_with={"DistributedDataParallel"},
        change=(
            (r"""["'](cuda|npu):\d+["']""", "f\"\\1:{os.environ['LOCAL_RANK']}\""),
            (r"""\.(cuda|npu|set_device)\(\d+\)""", r""".\1(int(os.environ["LOCAL_RANK"]))"""),
        ),
    ),
    "no_sync_calls": Search(calls.no_sync_calls),
    "several_backwards": Search(
        several_backwards,
        unless={"set_gradient_accumulation_boundary", "coalesce_grad_reduction"},
        only_with={"deepspeed"},
    ),
    "pipeline_modules": Search(
        partial(calls.calls_of, name="PipelineModule"), only_with={"deepspeed"}
    ),
    "frozen_block_inputs": Search(
        partial(calls.calls_of, name="get_peft_model"),
        unless={
            "enable_input_require_grads",
            "activation_checkpointing_enable",
            "gradient_checkpointing_enable",
            "prepare_model_for_kbit_training",
            "prepare_model_for_int8_training",
            "register_forward_hook",
            "requires_grad",
            "requires_grad_",
            "trl",
        },
        change=(
            (
                r"^\w+ *= *get_peft_model\( *([\w.]+) *,.*",
                r"\1.enable_input_require_grads(); \g<0>",
            ),
        ),
    ),
    "outdated_arguments": Search(
        calls.outdated_arguments,
        change=((r"\bevaluation_strategy\b", "eval_strategy"),),
    ),
}
"""Searches by the names in an entry's `points_at`."""


def spots(name: str, paths: Sequence[str]) -> tuple[SourceLocation, ...]:
    """Lines that a search finds in the files, skipping files that can't be parsed.

    Empty if any of the files contains words that make such lines harmless.
    """
    parsed: list[tuple[str, list[str], ast.AST]] = []
    for path in paths:
        tree = tree_of(Path(path))
        if tree is not None:
            text = regular_files.read(Path(path)).decode(errors="replace")
            parsed.append((path, text.splitlines(), tree))
    search = SEARCHES[name]
    words = {word for _, _, tree in parsed for word in _words(tree)}
    if words & search.unless or not search.only_with <= words:
        return ()
    return tuple(
        SourceLocation(path, number, text := lines[number - 1].strip(), search.changed(text))
        for path, lines, tree in parsed
        for number in dict.fromkeys(search.find(tree))
    )


def _words(tree: ast.AST) -> set[str]:
    """All names, attributes, imports and strings of a file."""
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                words.add(word)
            case ast.alias(name=name):
                words |= {name, name.partition(".")[0]}
            case ast.ImportFrom(module=str(name)):
                words.add(name.partition(".")[0])
    return words
