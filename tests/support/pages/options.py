"""The page of all options of torchrun and deepspeed: docs/using/options.md."""

from __future__ import annotations

from collections.abc import Sequence

from safe_launch.options.foreign_options import HOSTS, NODES, OUTPUT, TABLE, WORKERS
from safe_launch.options.option import Option

HEAD = """\
# torchrun's and deepspeed's options

Every option of `torchrun` (torch 2.13) and of `deepspeed` (0.16.9, 0.19.8), in all its spellings,
works as there, or is refused with what to use instead. Written by `scripts/options-docs`
from `launcher/options/`, which the parser's help comes from, too;
`tests/unit/options/test_options.py` compares it with the parsers of the installed versions: an
option of theirs that isn't here fails a test.

Dashes and underscores are the same, and an unambiguous prefix is enough. Options
precede the script; everything after the script is the script's own. Where an
option is marked with \\*, torchrun's `PET_` variable of its name (`PET_MAX_RESTARTS`) applies if it
is absent; a switch is on with 1 and off with 0."""
VARIABLES = """
## Variables

| variable | what it does here |
|---|---|
| `PET_*` | as above |
| `OMP_NUM_THREADS` | 1 for each of several workers, if it isn't set |
| `PYTHON_EXEC` | the Python that runs the workers; safe-launch must be installed for it |
| `LOGLEVEL` | `ERROR` and above act like `--quiet`; workers get it unchanged |
| `TORCH_ELASTIC_SHUTDOWN_TIMEOUT` | like `--shutdown-timeout`, if that is absent |
| `TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE` | like `--log-line-prefix-template`, if that is absent |
| `DS_ENV_FILE` | the name of the file of variables that go to every host (`.deepspeed_env`) |

`${local_rank}` in an argument of the script is the worker's local rank, as under torchrun.

Workers have torchrun's variables (`RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE`,
`GROUP_RANK`, `GROUP_WORLD_SIZE`, `ROLE_RANK`, `ROLE_NAME`, `ROLE_WORLD_SIZE`, `MASTER_ADDR`,
`MASTER_PORT`, `TORCHELASTIC_*`, `TORCH_NCCL_ASYNC_ERROR_HANDLING`) and deepspeed's `CROSS_RANK`
and `CROSS_SIZE`; where hosts or devices are chosen by deepspeed's options its `LOCAL_SIZE` too.
`TORCHELASTIC_RESTART_COUNT` counts all attempts;
`TORCHELASTIC_MAX_RESTARTS` is `--max-restarts`, or the former where corrections have made it
greater.
"""


def page() -> str:
    """The whole page."""
    taken = [option for option in TABLE if not option.instead]
    sections = (
        ("Nodes", [option for option in taken if option in NODES]),
        ("Hosts", [option for option in taken if option in HOSTS]),
        ("Workers", [option for option in taken if option in WORKERS]),
        ("Output", [option for option in taken if option in OUTPUT]),
    )
    parts = [HEAD]
    for title, own in sections:
        parts += [f"\n## {title}\n", *_rows(("option", "of", "what it does here", "difference"))]
        parts += [_row(_name(option), _of(option), option.does, option.differs) for option in own]
    parts += ["\n## Not taken\n", *_rows(("option", "of", "why, and what to use"))]
    parts += [
        _row(_name(option), _of(option), option.instead) for option in TABLE if option.instead
    ]
    return "\n".join(parts) + "\n" + VARIABLES


def _rows(titles: Sequence[str]) -> list[str]:
    return [_row(*titles), f"|{'---|' * len(titles)}"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _name(option: Option) -> str:
    """Its names, as its first tool writes them, with the placeholder of its value."""
    letters = [name for name in option.short if not name.startswith("--")]
    names = [*letters, option.name, *(name for name in option.short if name not in letters)]
    if option.tools[0] == "deepspeed":
        names = [f"--{name[2:].replace('-', '_')}" if name[1] == "-" else name for name in names]
    text = ", ".join(f"`{name}`" for name in names)
    value = f" `{option.value}`" if option.value else ""
    return text + value + (" \\*" if option.variable else "")


def _of(option: Option) -> str:
    return ", ".join(option.tools)
