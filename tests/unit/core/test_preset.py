"""The preset: its encoding for workers, and the script's access to it."""

from __future__ import annotations

import pytest
import safe_launch
from safe_launch.core.preset import VARIABLE, decode, describe, encode, preset_of
from safe_launch.core.settings import Setting, parse_value

SETTINGS = {
    Setting.ZERO_STAGE: 2,
    Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
    Setting.MICRO_BATCH: 4,
    Setting.STATIC_GRAPH: False,
}


def test_a_preset_survives_the_environment() -> None:
    """Decoding returns the encoded preset."""
    assert decode(encode(SETTINGS)) == SETTINGS
    assert preset_of(SETTINGS).settings() == SETTINGS


def test_a_script_can_read_its_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """`current_preset` is None outside the launcher; undecided settings are None."""
    assert safe_launch.current_preset() is None
    monkeypatch.setenv(VARIABLE, encode(SETTINGS))
    preset = safe_launch.current_preset()
    assert preset is not None
    assert (preset.micro_batch, preset.offload) == (4, None)
    assert str(preset) == ("ZeRO stage 2, non-reentrant checkpointing, micro batch 4")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"zero_stag": 2}',
        '{"zero_stage": "2"}',
        '{"precision": "fp8"}',
        '{"engine": "ddp"}',
    ],
)
def test_a_preset_that_is_none(text: str) -> None:
    """Anything that `encode` doesn't write is rejected: no JSON, unknown settings, values."""
    with pytest.raises(ValueError):  # noqa: PT011 - several, each with its own words
        decode(text)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        (Setting.ZERO_STAGE, 0, "ZeRO stage 0"),
        (Setting.OFFLOAD, "none", "no offload"),
        (Setting.OFFLOAD, "optimizer", "offload of optimizer"),
        (Setting.GRADIENT_CHECKPOINTING, "off", "no gradient checkpointing"),
        (Setting.GRADIENT_CHECKPOINTING, "reentrant", "reentrant checkpointing"),
        (Setting.ACCUMULATION, 2, "accumulation 2"),
        (Setting.PRECISION, "bf16", "bf16"),
        (Setting.FIND_UNUSED_PARAMETERS, True, "find_unused_parameters=True"),
    ],
)
def test_settings_in_words(setting: Setting, value: str | int | bool, words: str) -> None:
    """Each setting is described in its users' terms."""
    assert describe(setting, value) == words


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        (Setting.ZERO_STAGE, True),
        (Setting.ZERO_STAGE, "2"),
        (Setting.STATIC_GRAPH, 1),
        (Setting.PRECISION, "fp8"),
        (Setting.OFFLOAD, False),
    ],
)
def test_values_have_types(name: Setting, raw: object) -> None:
    """Flags, numbers and words aren't converted, and unknown words are rejected."""
    with pytest.raises(ValueError, match=name.value):
        parse_value(name, raw)
