"""deepspeed's options for the hosts of a launch."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from . import hostfile, over_ssh, terminal
from .exit_code import ExitCode, LaunchError
from .over_ssh import Asked, Chosen, contradiction
from .placement import PORT, JoinTimes
from .schedulers.here import this_host
from .ssh import Shell

LAUNCHERS = ("ssh", "pdsh")
"""Ways to the hosts. deepspeed's pdsh does nothing but start an ssh for each host (it sets
PDSH_RCMD_TYPE=ssh), and hands on no standard input, over which a job travels here; so ssh is
started without it."""
MARGIN = 10.0
"""Seconds for the nodes' verdict beyond the time in which they notice a silent one and stop."""
CHOOSING = ("hostfile", "include", "exclude", "num_nodes", "num_gpus")
"""Options that choose hosts or devices."""
EXCLUDES = ("nproc", "nnodes", "node_rank", "rdzv_endpoint", "rdzv_id", "standalone")
"""Options that say what the hosts say already."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options, each also with dashes."""
    group = parser.add_argument_group("hosts, reached over ssh from here")
    add = group.add_argument
    add(
        *("-H", "--hostfile"),
        type=Path,
        metavar="FILE",
        help="lines `host slots=N`; a launcher is started on each (default: /job/hostfile, if any)",
    )
    add(
        *("-i", "--include"),
        default="",
        metavar="SPEC",
        help="take these only: host1@host2:0,2 is all of host1, two devices of host2",
    )
    add(*("-e", "--exclude"), default="", metavar="SPEC", help="leave these out; as --include")
    add(*("--num_nodes", "--num-nodes"), type=int, metavar="N", help="the first N hosts")
    add(
        *("--num_gpus", "--num-gpus", "--num_accelerators", "--num-accelerators"),
        type=int,
        metavar="N",
        help="the first N devices of each host; without a hostfile, of this one",
    )
    add(*("--ssh_port", "--ssh-port"), type=int, metavar="PORT", help="of the hosts' ssh servers")
    add(
        "--launcher",
        type=str.lower,
        choices=LAUNCHERS,
        default="ssh",
        help="both are ssh, without pdsh",
    )
    add(
        *("--launcher_args", "--launcher-args"),
        default="",
        metavar="ARGS",
        help="further options of ssh, as one word: --launcher_args='-i ~/.ssh/cluster'",
    )
    add(
        *("--force_multi", "--force-multi"),
        action="store_true",
        help="over ssh even where the only host is this one",
    )


def asked(options: argparse.Namespace) -> Asked:
    """What the options say.

    Raises:
        LaunchError: the further options of ssh can't be taken apart.
    """
    try:
        shell = Shell(options.ssh_port, tuple(shlex.split(options.launcher_args)))
    except ValueError as error:
        problem = f"--launcher_args {options.launcher_args!r}: {error}"
        raise LaunchError(ExitCode.USAGE, problem) from error
    return Asked(
        hostfile=options.hostfile,
        include=options.include,
        exclude=options.exclude,
        nodes=None if options.num_nodes == -1 else options.num_nodes,
        devices=None if options.num_gpus == -1 else options.num_gpus,
        address=options.master_addr or "",
        port=int(options.master_port or PORT),
        shell=shell,
        force=options.force_multi,
    )


def chosen(options: argparse.Namespace) -> Chosen | None:
    """The hosts to launch on; None where nobody says anything of them.

    deepspeed's own place for a hostfile is looked at too, unless something else says how many
    launchers there are.

    Raises:
        LaunchError: what is asked for contradicts itself, the hostfile, or what else is said.
    """
    values = vars(options)
    stated = [f"--{one.replace('_', '-')}" for one in CHOOSING if values[one] not in (None, "")]
    if not stated and not hostfile.DEFAULT.is_file():
        return None
    given = [f"--{one.replace('_', '-')} {values[one]}" for one in EXCLUDES if values[one]]
    other = contradiction(given, os.environ, this_host())
    if other is not None and stated:
        problem = f"{stated[0]} and {other} both say what is launched where"
        raise LaunchError(ExitCode.USAGE, problem, "leave one of them out")
    if other is not None:
        return None
    file = options.hostfile or (hostfile.DEFAULT if hostfile.DEFAULT.is_file() else None)
    accelerators = 0
    if file is None:
        from . import detection

        accelerators = detection.detect().accelerators
    return over_ssh.chosen(asked(options), file, accelerators)


def taken_apart(
    arguments: Sequence[str], options: argparse.Namespace
) -> tuple[list[str], list[str]]:
    """The launcher's own options without those about hosts, and the script with its arguments."""
    count = len(options.arguments) + 1
    own, command = list(arguments[:-count]), list(arguments[-count:])
    assert command[0] == options.script
    if own[-1:] == ["--"]:
        del own[-1]
    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(ours)
    ours.add_argument("--master-addr", "--master_addr")
    ours.add_argument("--master-port", "--master_port")
    return ours.parse_known_args(own)[1], command


def launch(
    chosen: Chosen,
    arguments: Sequence[str],
    options: argparse.Namespace,
    is_launch: bool,
    run: Callable[[Sequence[str]], int],
) -> int:
    """Launches on the hosts; without ssh where this machine is all there is, or for a plan.

    Args:
        chosen: the hosts.
        arguments: the whole command line.
        options: what it says.
        is_launch: more than a plan is wanted.
        run: does what a command line says that has nothing of a hostfile.

    Raises:
        LaunchError: it can't be done as it is.
    """
    own, command = taken_apart(arguments, options)
    if is_launch and not chosen.is_here:
        silence = JoinTimes().silence if options.node_timeout is None else options.node_timeout
        patience = silence + options.leave_timeout + options.shutdown_timeout + MARGIN
        return over_ssh.launch(chosen, own, command, patience)
    slots = {len(host.slots) for host in chosen.hosts}
    if len(slots) > 1:
        problem = f"{chosen.source}: a plan needs the same number of slots on every host"
        raise LaunchError(ExitCode.USAGE, problem, "--num_gpus N takes so many of each")
    if chosen.is_here:
        os.environ.update(over_ssh.visible_here(chosen.hosts[0].slots, os.environ))
    if chosen.hosts[0].line:
        terminal.say(*terminal.table([chosen.row()], indent=0))
    return run([*own, "--nnodes", str(len(chosen.hosts)), "--nproc", str(slots.pop()), *command])
