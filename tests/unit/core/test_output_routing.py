"""The prefix of a rank's output lines."""

from __future__ import annotations

import socket

import pytest
from safe_launch.core.output_routing import Streams
from safe_launch.options import output_options
from safe_launch.options.parser import by_variables, parsed

TEMPLATE = "${hostname}:${rank}/${local_rank} ${role_name} ${other}> "
VARIABLE = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rank}> "}


def test_the_macros_of_a_prefix() -> None:
    """Torchrun's macros are expanded; others are kept."""
    expected = f"{socket.gethostname()}:9/1 job ${{other}}> "
    assert Streams(prefix=TEMPLATE).head(1, 9, "job") == expected
    assert Streams().head(1, 9, "job") == "[job1]:"


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ([f"--log-line-prefix-template={TEMPLATE}"], VARIABLE, TEMPLATE),
        (["--log_line_prefix_template", "x "], {}, "x "),
        ([], {"PET_LOG_LINE_PREFIX_TEMPLATE": "y "} | VARIABLE, "y "),
        ([], VARIABLE, "${rank}> "),
        ([], {}, "[${role_name}${local_rank}]:"),
    ],
)
def test_the_option_precedes_the_variable(
    words: list[str], environment: dict[str, str], expected: str
) -> None:
    """This is torchrun's order."""
    options = parsed([*by_variables(environment), *words, "x.py"])
    assert output_options.streams(options, environment).prefix == expected
