"""How long workers have between two stop signals, and who decides that."""

from __future__ import annotations

import pytest
from safe_launch.options import parser, process_options

ELASTIC = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ((), {}, 15.0),
        (("--shutdown-timeout=3",), ELASTIC, 3.0),
        ((), ELASTIC, 5.0),
        ((), {**ELASTIC, "PET_SHUTDOWN_TIMEOUT": "4"}, 4.0),
    ],
)
def test_who_says_how_long_a_shutdown_takes(
    options: tuple[str, ...], variables: dict[str, str], expected: float
) -> None:
    """The option, then its variable, then torch elastic's variable."""
    given = parser.parsed([*parser.by_variables(variables), *options, "train.py"])
    assert process_options.stop_times(given, variables).terminate == expected
