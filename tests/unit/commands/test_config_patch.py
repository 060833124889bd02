"""Values in the user's JSON and YAML are changed, and all else is kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.commands.config_patch import patched
from safe_launch.core.errors import Refused


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ('{"a": 1, "z": {"stage": 3}}', "z.stage", 2, '{"a": 1, "z": {"stage": 2}}'),
        (
            '{\n\t"z": {\n\t\t"stage":\t3\n\t}\n}\n',
            "z.stage",
            2,
            '{\n\t"z": {\n\t\t"stage":\t2\n\t}\n}\n',
        ),
        ('{"a": "auto"}', "a", 4, '{"a": 4}'),
        ("{}", "a.b", 4, '{"a": {"b": 4}}'),
        ('{"a": {}}', "a.b", True, '{"a": {"b": true}}'),
        ('{\n  "a": [1]\n}', "b", 4, '{\n  "a": [1],\n  "b": 4\n}'),
        ('{"é": "ж", "b": 1}', "b", 2, '{"é": "ж", "b": 2}'),
        ('{"a": 1, "a": 2}', "a", 3, '{"a": 1, "a": 3}'),
        ("# mine\nstage: 3  # why\nother: x\n", "stage", 2, "# mine\nstage: 2  # why\nother: x\n"),
        ("z:\n  # deep\n  stage: 3\n", "z.stage", 2, "z:\n  # deep\n  stage: 2\n"),
        ("z:\n  deep: 3\n", "z.stage", 2, "z:\n  stage: 2\n  deep: 3\n"),
        ("a: 1\n", "z.stage", 2, 'z: {"stage": 2}\na: 1\n'),
        ("a: 'x'\nb: {c: 1}\n", "b.c", 2, "a: 'x'\nb: {c: 2}\n"),
    ],
)
def test_a_value_is_replaced_or_added(before: str, key: str, value: object, after: str) -> None:
    """All else is kept, comments and tabs too."""
    assert patched(before, key, value) == after


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a: &x 1\nb: *x\n", "a"),
        ("a: [1, 2]\n", "a"),
        ("a: |\n  text\n", "a"),
        ("a: 1\n", "a.b"),
        ("- a\n", "a"),
        ("a: 1\n--- \nb: 1\n", "a"),
        ("{", "a"),
        ("", "a"),
    ],
)
def test_what_isnt_certain_is_left_alone(text: str, key: str) -> None:
    """The reason is reported."""
    assert isinstance(patched(text, key, 2), Refused)


DOCUMENTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.text("äx# {", max_size=3)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers()),
    max_leaves=6,
)


@given(
    DOCUMENTS,
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
    st.sampled_from([None, 2, "\t"]),
)
def test_only_the_value_changes(document: object, key: list[str], indent: int | str | None) -> None:
    """For any JSON, only the value changes or the file is left alone."""
    assert isinstance(document, dict)
    changed = patched(json.dumps(document, indent=indent), ".".join(key), 7)
    within = document
    for part in key[:-1]:
        within = within.setdefault(part, {}) if isinstance(within, dict) else None
    single = isinstance(within, dict) and not isinstance(within.get(key[-1]), dict)
    assert isinstance(changed, str) == single
    if isinstance(changed, str):
        within[key[-1]] = 7
        assert json.loads(changed) == document
