"""The command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from .commands import lookup, wrap
from .commands.template import template_command
from .core.errors import ExitCode, LaunchError
from .core.placement import Placement
from .core.request import Fix, LaunchRequest, Limits, WorkerOptions
from .core.version import VERSION
from .core.workload import Workload
from .options import host_options, node_options, output_options, process_options
from .options.parser import by_variables, parsed, parser
from .options.worker_count import option_of, shows_all_devices, workers_asked
from .system import terminal

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "catalogue": lookup.catalogue,
    "diagnose": lookup.diagnose,
    "explain": lookup.explain,
    "hardware": lookup.hardware,
    "template": template_command.template,
    "wrap": wrap.wrap,
}
"""The commands that need no script; `plan` takes the options of a launch."""


def request_of(
    options: argparse.Namespace,
    kind: str,
    accelerators: int,
    cores: int,
    placement: Placement,
    environment: Mapping[str, str],
) -> LaunchRequest:
    """The launch that the options describe.

    Raises:
        LaunchError: they describe none.
    """
    if options.script is None:
        raise LaunchError(
            ExitCode.USAGE, "no script is given", "safe-launch [options] script.py ..."
        )
    asked, option = option_of(options.nproc, environment)
    nproc, source = workers_asked(asked, kind, accelerators, cores, placement, option)
    return LaunchRequest(
        script=options.script,
        is_module=options.module,
        arguments=tuple(options.arguments),
        nproc=nproc,
        nproc_source=source,
        log_dir=options.log_dir,
        limits=Limits(Fix(options.fix), options.strict, options.allow_restart),
        worker_options=WorkerOptions(
            stop_times=process_options.stop_times(options, environment),
            streams=output_options.streams(options, environment),
        ),
        placement=replace(
            placement, shows_all_devices=shows_all_devices(placement, nproc, accelerators)
        ),
    )


def run(arguments: Sequence[str]) -> int:
    """Does what the command line says; returns the exit code.

    Raises:
        LaunchError: it can't be done as it is.
    """
    command = arguments[0] if arguments and not Path(arguments[0]).is_file() else ""
    if command in COMMANDS:
        return COMMANDS[command](arguments[1:])
    is_launch = command != "plan"
    words = [*by_variables(os.environ), *arguments[not is_launch :]]
    options = parsed(words)
    terminal.be_quiet(wanted=is_launch and output_options.is_quiet(options, os.environ))
    if options.version:
        terminal.show(f"safe-launch {VERSION}")
        return ExitCode.SUCCESS
    from .machine import detect, profiles
    from .nodes.ssh import launch_on_hosts
    from .options import misplaced
    from .planning import named_presets
    from .schedulers import read_placement
    from .schedulers.this_host import this_host
    from .session import first_plan, loop, multi_node
    from .system import run_directory
    from .workers import start
    from .workload.config_files import accelerate
    from .workload.read_workload import read_workload

    hosts = host_options.chosen(options)
    if hosts is not None and options.script is not None:
        again = partial(_run_again, arguments[: not is_launch])
        own, script = parser().apart(words)
        return launch_on_hosts.launch(hosts, own, script, options, is_launch=is_launch, run=again)
    found = detect.detect()
    hardware = found if options.hardware is None else profiles.hardware_of(options.hardware, found)
    if options.accelerate_config is not None:
        for name, value in accelerate.variables(options.accelerate_config).items():
            os.environ.setdefault(name, value)
    placement = read_placement.placement_of(
        node_options.given(options),
        options.node_timeout,
        os.environ,
        this_host(),
        is_launch=is_launch,
    )
    device, count = hardware.accelerator.name, hardware.accelerators
    request = request_of(options, device, count, hardware.cores, placement, os.environ)
    gpus = count if hardware.accelerator.kind in ("cuda", "rocm") else 0
    request = process_options.applied(request, options, os.environ, gpus, is_launch)
    if placement.is_head and (note := misplaced.line(request, parser().spellings)):
        terminal.say(note)
    for number in options.signals_to_handle:  # for the workers; there are none now
        if signal.getsignal(number) is not signal.SIG_IGN:  # which they would inherit
            signal.signal(number, lambda _number, _frame: None)
    if is_launch and options.hardware is not None:
        for problem in profiles.contradictions(hardware, found, request.nproc):
            raise LaunchError(ExitCode.USAGE, f"--hardware {options.hardware}: {problem}")
    wanted = named_presets.wanted(options.preset, options.set)
    catalogue = lookup.known_failures(options.catalogue)

    def read(request: LaunchRequest) -> Workload:
        return named_presets.with_wanted(read_workload(request), wanted)

    if not is_launch:
        return first_plan.show_plan(request, read(request), hardware, catalogue, options.json)
    output_options.make_folder(request.worker_options.streams)
    with process_options.pid_file(options.save_pid):
        server = start.server(request, hardware.accelerator.environment, run_directory.new_id())
        try:
            if not placement.is_alone:
                return multi_node.launch(request, hardware, catalogue, read, server)
            return loop.launch(request, read(request), hardware, catalogue, server)
        finally:
            server.end()


def _run_again(head: Sequence[str], words: Sequence[str]) -> int:
    return run([*head, *words])


def main() -> NoReturn:
    """The entry point; never shows a traceback for a mistake that isn't ours."""
    sys.exit(guarded(sys.argv[1:]))


def _stop(number: int, _frame: object) -> NoReturn:
    """Ends the launcher at once while no worker is running.

    An exception wouldn't do: Python swallows what is raised in callbacks of its import system,
    which is where most of this time is spent. A container's first process ignores signals that it
    has no handler for.
    """
    from .report import pod_status

    pod_status.write(pod_status.stop_line(number), os.environ)
    os._exit(128 + number)


def guarded(arguments: Sequence[str]) -> int:
    """Runs the command line; every error becomes a message and an exit code."""
    from .report import pod_status

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # for the workers; there are none now
        signal.signal(number, signal.SIG_IGN)
    try:
        code = run(arguments)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # it is over: nothing is left to stop
        return code
    except LaunchError as error:
        terminal.say(f"error: {error.problem}", *([f"hint: {error.hint}"] if error.hint else []))
        pod_status.write(pod_status.error_line(error), os.environ)
        return error.code
    except Exception as error:
        terminal.say(
            "error: safe-launch itself failed; no worker is left behind. Please report this:",
            f"safe-launch {' '.join(arguments)}",
            f"python {sys.version.split()[0]}, in {os.getcwd()}",  # noqa: PTH109
        )
        terminal.verbatim(traceback.format_exc())
        what = f"{type(error).__name__}: {error}"
        pod_status.write(pod_status.end_line(ExitCode.INTERNAL, what), os.environ)
        return ExitCode.INTERNAL


if __name__ == "__main__":
    main()
