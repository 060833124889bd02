"""Values in the user's Python are changed, and nothing else is."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.commands.fix.python_patch import patched
from safe_launch.core.refused import Refused

OFF: Mapping[str, object] = {"use_reentrant": False}
KWARGS: Mapping[str, object] = {
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": {"use_reentrant": False},
}
WRITTEN = 'gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = checkpoint(f, x)", "y = checkpoint(f, x, use_reentrant=False)"),
        ("y = checkpoint()", "y = checkpoint(use_reentrant=False)"),
        ("y = checkpoint(f, x, )", "y = checkpoint(f, x, use_reentrant=False )"),
        ("y = checkpoint(f, (x))", "y = checkpoint(f, (x), use_reentrant=False)"),
        ("y = checkpoint(f, g(x)[0])", "y = checkpoint(f, g(x)[0], use_reentrant=False)"),
        ("y = checkpoint(f, *xs)", "y = checkpoint(f, *xs, use_reentrant=False)"),
        (
            "y = checkpoint(f, x, use_reentrant = True)  # as ever",
            "y = checkpoint(f, x, use_reentrant = False)  # as ever",
        ),
        (
            "y = checkpoint(f, x, use_reentrant=(a or b), preserve_rng_state=False)",
            "y = checkpoint(f, x, use_reentrant=(False), preserve_rng_state=False)",
        ),
        (
            "s = 'größe', checkpoint(f, 'ж', use_reentrant=True), 'é'",
            "s = 'größe', checkpoint(f, 'ж', use_reentrant=False), 'é'",
        ),
        ("y = checkpoint(f, x, k=')')", "y = checkpoint(f, x, k=')', use_reentrant=False)"),
    ],
)
def test_a_call_on_one_line(line: str, expected: str) -> None:
    """The argument is replaced, or added behind the others."""
    assert patched(f"import a\n{line}\nz = 1\n", 2, "checkpoint", OFF) == (
        f"import a\n{expected}\nz = 1\n"
    )


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "args = TrainingArguments(\n    'out',\n    bf16=True,  # it can\n)\n",
            (
                "args = TrainingArguments(\n    'out',\n    bf16=True,  # it can\n"
                "    gradient_checkpointing=True,\n"
                '    gradient_checkpointing_kwargs={"use_reentrant": False},\n)\n'
            ),
        ),
        (
            "args = TrainingArguments(\n\t'out',\n\tbf16=True  # it can\n)\n",
            f"args = TrainingArguments(\n\t'out',\n\tbf16=True, {WRITTEN}  # it can\n)\n",
        ),
        (
            "args = TrainingArguments('out',\n                         bf16=True)\n",
            f"args = TrainingArguments('out',\n                         bf16=True, {WRITTEN})\n",
        ),
        (
            "args = TrainingArguments('out',\n    gradient_checkpointing=False,\n)\n",
            (
                "args = TrainingArguments('out',\n    gradient_checkpointing=True,\n"
                '    gradient_checkpointing_kwargs={"use_reentrant": False},\n)\n'
            ),
        ),
        (
            "args = TrainingArguments(\n    'out',\n    # nothing more\n)\n",
            (
                "args = TrainingArguments(\n    'out',\n    gradient_checkpointing=True,\n"
                '    gradient_checkpointing_kwargs={"use_reentrant": False},\n'
                "    # nothing more\n)\n"
            ),
        ),
    ],
)
def test_a_call_on_several_lines(before: str, after: str, end: str) -> None:
    """A new argument has a line of its own where the others have."""
    before, after = before.replace("\n", end), after.replace("\n", end)
    assert patched(before, 1, "TrainingArguments", KWARGS) == after


def test_a_value_at_its_own_line() -> None:
    """A keyword, an item, and an attribute are found by their names, wherever the call begins."""
    call = "run(\n    1,\n    steps=4,\n)\n"
    assert patched(call, 3, "steps", {"steps": 8}) == call.replace("4", "8")
    items = 'defaults = {\n    "steps": 4,\n    **more,\n}\n'
    assert patched(items, 2, "steps", {"steps": 8}) == items.replace("4", "8")
    added = patched('kw = {"gradient_checkpointing": 0}\n', 1, "gradient_checkpointing", KWARGS)
    assert added == (
        'kw = {"gradient_checkpointing": True, '
        '"gradient_checkpointing_kwargs": {"use_reentrant": False}}\n'
    )
    loop = "def main():\n    args.gradient_checkpointing = False  # slow\n    train()\n"
    assert patched(loop, 2, "gradient_checkpointing", KWARGS) == (
        "def main():\n    args.gradient_checkpointing = True  # slow\n"
        '    args.gradient_checkpointing_kwargs = {"use_reentrant": False}\n    train()\n'
    )


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("checkpoint(f, **kw)\n", 1, "takes `\\*\\*`"),
        ("\ncheckpoint(f)\n", 1, "it isn't clear what sets"),
        ("a = checkpoint(f), checkpoint(g)\n", 1, "it isn't clear what sets"),
        ("recheckpoint(f)\n", 1, "it isn't clear what sets"),
        ("checkpoint(x for x in y)\n", 1, "can't be changed safely"),
        ("a = f'{checkpoint(f)}'\n", 1, "can't be changed safely"),
        ("checkpoint(f\n", 1, "isn't Python"),
        ("a = 1\rcheckpoint(f)\n", 2, "line ends"),
        ("use_reentrant = 1; b = 2\n", 1, "shares its line"),
    ],
)
def test_what_isnt_certain_is_left_alone(text: str, line: int, why: str) -> None:
    """With the reason."""
    is_assigned = text.startswith("use_reentrant")
    name, more = ("use_reentrant", {"other": 1}) if is_assigned else ("checkpoint", {})
    refused = patched(text, line, name, {**OFF, **more})
    assert isinstance(refused, Refused)
    assert re.search(why, refused.sentence)


ARGUMENTS = st.sampled_from(
    ["x", "(x)", "'ä)('", "*xs", "k={1: 2}", "b=[f(x)]", "use_reentrant=None", "d=lambda: (1, 2)"]
)
GAPS = st.sampled_from([", ", ",\n    ", " ,  # so (\n        "])


@given(st.lists(ARGUMENTS, unique=True), GAPS, st.sampled_from(["", ",", ",\n", "\n"]))
def test_only_the_argument_changes(arguments: list[str], gap: str, end: str) -> None:
    """However a call is written: the new text is Python, and the same but for the argument."""
    arguments.sort(key=lambda text: "=" in text and text[0] not in "'(*")
    text = f"# é\ny = checkpoint({gap.join(arguments)}{end if arguments else ''})  # z\n"
    changed = patched(text, 2, "checkpoint", OFF)
    assert isinstance(changed, str)
    before, after = ast.parse(text).body[0], ast.parse(changed).body[0]
    assert isinstance(before, ast.Assign)
    assert isinstance(before.value, ast.Call)
    kept = before.value.keywords
    names = [each.arg for each in kept]
    place = names.index("use_reentrant") if "use_reentrant" in names else len(names)
    kept[place : place + 1] = [ast.keyword("use_reentrant", ast.Constant(value=False))]
    assert ast.dump(after) == ast.dump(before)
    assert changed.endswith("  # z\n")
