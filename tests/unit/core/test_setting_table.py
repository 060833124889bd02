"""The table of settings: each row is complete, and its cells agree."""

from __future__ import annotations

import itertools

from safe_launch.core.setting_table import Setting
from safe_launch.core.settings import BATCH, LEAST_MEMORY, is_value
from support.tables import table

MODEL = {"trainable_parameters": 2**30, "frozen_parameters": 2**30}
SETTINGS = [*Setting]


def few(setting: Setting) -> list[str | int | bool]:
    """All values of a setting, or some, if any number is one."""
    return [1, 2, 8] if setting in BATCH else setting.values


@table("setting", SETTINGS, name=str)
def test_every_value_has_words_of_its_own(setting: Setting) -> None:
    """No two values of a setting read the same."""
    values = few(setting)
    assert all(is_value(value, setting.value) for value in values)
    assert len({setting.row.values.words(value) for value in values}) == len(values)


@table("setting", SETTINGS, name=str)
def test_every_change_has_a_cost(setting: Setting) -> None:
    """From each value, and from an unknown one, to each other."""
    cost = setting.row.cost
    for old, new in itertools.permutations([None, *few(setting)], 2):
        if new is not None and not isinstance(cost, str):
            assert cost(old, new, MODEL, 4)


@table("setting", SETTINGS, name=str)
def test_a_change_is_farther_than_none(setting: Setting) -> None:
    """A setting that nothing keeps changes with another: the accumulation with the micro batch."""
    changed = {
        kept.distance(new, old) > 0
        for old, new in itertools.permutations(few(setting), 2)
        for kept in setting.row.kept[-1:]
    }
    assert changed == (set() if setting is Setting.ACCUMULATION else {True})
    assert all(kept.distance(one, one) == 0 for kept in setting.row.kept for one in few(setting))


def test_reasons_to_keep_have_places_of_their_own() -> None:
    """What is always kept comes first, then what the user has stated."""
    kept = sorted(kept for setting in Setting for kept in setting.row.kept)
    assert len({one.place for one in kept}) == len(kept)
    order = ["always", "if stated", "never"]
    assert [one.before_time for one in kept] == sorted(
        (one.before_time for one in kept), key=order.index
    )


def test_the_lightest_values_are_values() -> None:
    """Each is of its setting's type and range."""
    assert all(is_value(value, setting.value) for setting, value in LEAST_MEMORY.items())


def test_a_place_names_one_setting() -> None:
    """No field, key, variable or argument of a function stands for two settings."""
    rows = [setting.row for setting in Setting]
    for names in (
        [row.argument for row in rows if row.argument],
        [row.variable for row in rows if row.variable],
        [row.deepspeed for row in rows if row.deepspeed],
        [row.fsdp for row in rows if row.fsdp],
        [(call, row.keyword or row.name) for row in rows for call in row.calls],
    ):
        assert len({*names}) == len(names)
