"""Every option of torchrun and deepspeed is known, accepted or refused, and documented."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pytest
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.core.output_routing import Streams, which, words
from safe_launch.options import parser, table
from safe_launch.options.foreign_options import TABLE
from safe_launch.options.option import Option
from support import tables
from support.pages.options import page
from support.stacks import ROOT

VALUES = {
    "--nnodes": "1:2",
    "--nproc-per-node": "2",
    "--max-restarts": "3",
    "--monitor-interval": "0.5",
    "--start-method": "spawn",
    "--event-log-handler": "null",
    "--signals-to-handle": "SIGTERM,SIGCONT",
    "--shutdown-timeout": "7",
    "--numa-binding": "node",
    "--redirects": "3",
    "--tee": "0:1,1:2",
    "--local-ranks-filter": "0,1",
    "--logs-specs": "default",
    "--num-nodes": "1",
    "--num-gpus": "2",
    "--ssh-port": "2222",
    "--launcher": "pdsh",
    "--bind-core-list": "0-1",
    "--log-level": "warning",
}
"""Values of the options that accept only some words."""
CATALOGUE = read_catalogue()
TAKEN = [one for one in TABLE if not one.instead]
REFUSED = [one for one in TABLE if one.instead]


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """A command line's values, without the options' spelling."""
    found = parser.parsed(words)
    del found.option_words
    return found


@tables.table("one", TAKEN, name=lambda one: one.name)
def test_what_is_taken(one: Option) -> None:
    """All spellings parse to the same and are in the help."""
    value = [VALUES.get(one.name, "word")] if one.value else []
    read = [vars(parsed([name, *value, "x.py"])) for name in one.spellings]
    plain = vars(parsed(["x.py"]))
    assert all(each == read[0] for each in read)
    if one.name not in ("--event-log-handler", "--logs-specs") or read[0] != plain:
        assert read[0] != plain
    assert one.name in parser.parser().format_help()


@pytest.mark.parametrize(
    ("short", "whole"), [("--num_gpu", "--num_gpus"), ("--nnode", "--nnodes"), ("--tee", "-t")]
)
def test_a_beginning_is_enough(short: str, whole: str) -> None:
    """A unique prefix suffices, as in their parsers."""
    assert parsed([short, "2", "x.py"]) == parsed([whole, "2", "x.py"])
    with pytest.raises(LaunchError, match="ambiguous option: --no-"):
        parser.parsed(["--no-", "x.py"])


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_what_is_refused(one: Option) -> None:
    """All spellings give an error with the reason, the alternative and the typed spelling."""
    for name in one.spellings:
        value = ["2"] if one.value else []
        with pytest.raises(LaunchError) as caught:
            parser.parsed([name, *value, "x.py"])
        assert caught.value.code == ExitCode.USAGE
        assert caught.value.problem == f"{name} {one.instead}"
        assert "\n" not in caught.value.problem


@tables.table(
    ("arguments", "problem", "hint"),
    [
        (
            ("--event-log-handler", "console"),
            "there is no other handler than null",
            "run directory",
        ),
        (("--logs-specs", "own"), "output goes through the launcher's own pipes", "--redirects"),
        (("--launcher", "openmpi"), "doesn't start mpirun", "--map-by ppr:1:node safe-launch"),
        (("--launcher", "MPICH"), "doesn't start mpirun", "mpirun -np HOSTS -ppn 1 safe-launch"),
        (("--launcher", "impi"), "doesn't start mpirun", "mpirun -np HOSTS -ppn 1 safe-launch"),
        (("--launcher", "mvapich"), "doesn't start mpirun", "mpirun -np HOSTS -ppn 1 safe-launch"),
        (("--launcher", "slurm"), "doesn't start srun", "srun --ntasks-per-node=1 safe-launch"),
        (("--launcher", "slrum"), "--launcher 'slrum' is unknown", "`slurm`"),
        (("-r", "4"), "--redirects 4: 0, 1, 2 or 3 is needed", "1 is stdout"),
        (("-t", "0:1;1:2"), "--tee 0:1;1:2", ""),
        (("--local-ranks-filter", "0,x"), "--local-ranks-filter 0,x", "as in 0,1"),
        (("--signals-to-handle", "SIGCONTI"), "there is no signal 'SIGCONTI'", "`SIGCONT`"),
        (("--signals-to-handle", "SIGKILL"), "SIGKILL can't be caught", ""),
        (("--bind_core_list", "3-1"), "numbers and spans in ascending order", "0-3,8"),
        (("--max-restarts", "-1"), "a whole number is needed: -1", ""),
        (("--max-restarts", "2.5"), "a whole number is needed: 2.5", ""),
        (("--monitor-interval", "soon"), "'soon'", ""),
        (("--start-method", "thread"), "--start-method: `thread` is none of ", ""),
        (("--numa-binding", "near"), "--numa-binding: `near` is none of ", ""),
        (("--log_level", "loud"), "--log-level: `loud` is none of ", ""),
        (("--nprocs-per-node", "2"), "unrecognized arguments: --nprocs-per-node", "-per-node`?"),
        (("--frobnicate",), "unrecognized arguments: --frobnicate", "the script's go after it"),
        (("--log-dir", ""), "--log-dir: the path is empty: is a variable unset?", "--help"),
        (("-c", "print(1)"), "unrecognized arguments: -c", "write it into a file"),
    ],
)
def test_values_that_mean_nothing(arguments: tuple[str, ...], problem: str, hint: str) -> None:
    """The message has option and value; the hint has valid values."""
    with pytest.raises(LaunchError) as caught:
        parser.parsed([*arguments, "x.py"])
    assert caught.value.code == ExitCode.USAGE
    assert problem in caught.value.problem
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ([], "on"),
        (["--ask"], True),
        (["--ask", "--nproc", "2"], True),
        (["--as"], True),
        (["--ask", "off"], "off"),
        (["--ask=off"], "off"),
        (["--ask=off", "--ask"], True),
    ],
)
def test_asking_takes_few_words(words: list[str], asks: object) -> None:
    """`--ask` doesn't take the script as its value; after the script it is an argument."""
    found = parser.parsed([*words, "train.py", "--ask"])
    assert (found.ask, found.script, found.arguments) == (asks, "train.py", ["--ask"])


@pytest.mark.parametrize(
    "one",
    [one for one in TABLE if one.variable and one.key not in table.ELSEWHERE],
    ids=lambda one: one.name,
)
def test_torchruns_variables_hold_where_the_option_is_absent(one: Option) -> None:
    """A variable acts as its option; the command line overrides it."""
    value = VALUES.get(one.name, "word") if one.value else "1"
    given = [f"{one.name}={value}"] if one.value else [one.name]
    variable = f"PET_{one.key.upper()}"
    assert parser.by_variables({variable: value}) == given
    assert parser.by_variables({variable: ""}) == []
    if one.value:
        return
    for off in ("0", "false"):
        assert parser.by_variables({variable: off}) == []
    for on in ("2", "true", "Yes"):
        assert parser.by_variables({variable: on}) == given
    with pytest.raises(LaunchError, match=f"{variable}=maybe is neither 1 nor 0"):
        parser.by_variables({variable: "maybe"})


def test_a_variables_mistake_names_the_variable() -> None:
    """The message doesn't name an option that wasn't typed."""
    with pytest.raises(LaunchError) as caught:
        parser.by_variables({"PET_MAX_RESTARTS": "many"})
    assert caught.value.problem.startswith("PET_MAX_RESTARTS=many: ")


def test_the_page_is_up_to_date() -> None:
    """scripts/options-docs writes every option to docs/using/options.md."""
    text = (ROOT / "docs" / "using" / "options.md").read_text()
    assert text == page(), "run scripts/options-docs"
    for one in TABLE:
        underscored = f"--{one.key}"
        assert f"`{one.name}`" in text or f"`{underscored}`" in text


def test_which_streams() -> None:
    """Torchrun's two forms, with two-digit local ranks; others give None."""
    assert which("0") == ()
    assert which("3") == ((-1, 3),)
    assert which("0:1,12:2") == ((0, 1), (12, 2))
    assert [which(one) for one in ("", "4", "1:4", "0:1,", "x")] == [None] * 5
    assert words("apple,,pie,orange,") == ("apple,pie", "orange")
    both = Streams(redirected=((-1, 3),), teed=((1, 1),), shown=frozenset({0, 1}))
    assert [both.is_shown(*one) for one in ((0, 1), (1, 1), (1, 2), (2, 1))] == [
        *(False, True, False, False)
    ]
