"""The preset: what the workers are told, and what a script can read of it."""

from __future__ import annotations

import pytest
import safe_launch
from safe_launch.preset import VARIABLE, decode, encode, preset_of
from safe_launch.settings import Setting, parse_value

SETTINGS = {
    Setting.ZERO_STAGE: 2,
    Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
    Setting.MICRO_BATCH: 4,
    Setting.STATIC_GRAPH: False,
}


def test_a_preset_survives_the_environment() -> None:
    """Encoded, decoded, the same."""
    assert decode(encode(SETTINGS)) == SETTINGS
    assert preset_of(SETTINGS).settings() == SETTINGS


def test_a_script_can_read_its_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """`current_preset` is None outside of the launcher; what isn't decided is None in it."""
    assert safe_launch.current_preset() is None
    monkeypatch.setenv(VARIABLE, encode(SETTINGS))
    preset = safe_launch.current_preset()
    assert preset is not None
    assert (preset.micro_batch, preset.offload) == (4, None)
    assert str(preset) == (
        "ZeRO stage 2, non-reentrant checkpointing, micro batch 4, static_graph=False"
    )


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
    """A number isn't a flag, a word isn't a number, and only known words are words."""
    with pytest.raises(ValueError, match=name.value):
        parse_value(name, raw)
