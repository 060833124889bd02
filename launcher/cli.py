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

from . import (
    cluster_options,
    commands,
    host_options,
    output_options,
    process_options,
    templates,
    terminal,
    wrap,
)
from . import options as foreign
from .commands import Parser
from .exit_code import MEANINGS, ExitCode, LaunchError
from .placement import Placement
from .request import Fix, LaunchRequest
from .worker_count import option_of, shows_all_devices, workers_asked
from .workload import Workload

USAGE = """safe-launch [options] script.py [script arguments]
       safe-launch [options] -m module [script arguments]
       safe-launch plan [options] script.py [script arguments]
       safe-launch diagnose [--json] PATH...
       safe-launch catalogue [WORDS...]
       safe-launch explain [ID...]
       safe-launch hardware [--json]
       safe-launch template slurm|kubernetes [options] script.py [script arguments]
       safe-launch wrap [options] -- COMMAND..."""

CODES = "\n".join(f"  {code.value:<4}{text}" for code, text in MEANINGS.items())
EPILOG = f"""\
commands:
  plan       print what would be launched, and launch nothing
  diagnose   name the root cause of a failed training from its logs
  catalogue  search the known failures by a message or by words, or list them
  explain    print known failures whole, or list them
  hardware   list the accelerators that are known, and show what was found on this host
  template   write a file for Slurm or Kubernetes, filled in for a job
  wrap       run a tool that calls torchrun, deepspeed or accelerate itself; its launch is ours

exit codes:
{CODES}
  130, 143, ...  stopped by SIGINT, SIGTERM, ... (128 + its number)
  any other code is the failed worker's own, 128 + N if signal N ended it
"""


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "catalogue": commands.catalogue,
    "diagnose": commands.diagnose,
    "explain": commands.explain,
    "hardware": commands.hardware,
    "template": templates.template,
    "wrap": wrap.wrap,
}
"""The commands that need no script; `plan` takes the options of a launch."""


def parser() -> Parser:
    """The options, declared once; torchrun's names where it has them."""
    result = Parser(
        prog="safe-launch",
        usage=USAGE,
        description="Launches a distributed training script, catches its known failures and "
        "relaunches it with a corrected preset.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    foreign.add(result, "nproc_per_node", dest="nproc")
    foreign.add(result, "module")
    result.add_argument(
        "--fix",
        choices=[fix.value for fix in Fix],
        default=Fix.AUTO.value,
        help="auto: change what is known to fail; once: relaunch one time at most; suggest: "
        "change nothing, explain what would be changed (default: auto)",
    )
    result.add_argument(
        "--catalogue",
        type=Path,
        metavar="FOLDER",
        help="a folder of further known failures, for a cluster's own",
    )
    result.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a named preset (zero2, zero3-offload, ...) or a YAML file of one, instead "
        "of what the script asks for",
    )
    result.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="ask for one setting, e.g. --set zero_stage=2; may be given several times",
    )
    result.add_argument(
        "--accelerate-config",
        type=Path,
        metavar="FILE",
        help="a configuration of accelerate's, as `accelerate launch --config_file` takes it",
    )
    result.add_argument(
        "--strict", action="store_true", help="refuse to launch where anything would be changed"
    )
    result.add_argument(
        "--allow-restart",
        "--allow_restart",
        action="store_true",
        help="let a correction start the training anew where it can't go on from the checkpoints "
        "that the job has written; they are kept",
    )
    result.add_argument(
        "--hardware",
        metavar="NAME|FILE",
        help="plan for this accelerator or node, by the name or file of its profile, instead of "
        "what is found on this host",
    )
    result.add_argument(
        "--json", action="store_true", help="plan, hardware: print a document for programs"
    )
    cluster_options.declare(result)
    host_options.declare(result)
    process_options.declare(result)
    output_options.declare(result)
    foreign.add_refusals(result)
    result.add_argument("--version", action="store_true", help="print the version")
    return result


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What a command line says: the options, `script`, which may be None, and its `arguments`.

    Raises:
        LaunchError: it can't be understood.
    """
    ours = parser()
    own, command = ours.apart(arguments)
    script = command.pop(0) if command else None
    return ours.parse_args(own, argparse.Namespace(script=script, arguments=command))


def by_variables(environment: Mapping[str, str]) -> list[str]:
    """What torchrun's PET_* variables say, as the options that they stand for.

    Raises:
        LaunchError: one can't be understood.
    """
    result: list[str] = []
    for variable, words in foreign.by_variables(environment):
        try:
            parsed(words)
        except LaunchError as error:
            raise LaunchError(error.code, f"{variable}: {error.problem}", error.hint) from error
        result += words
    return result


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
        fix=Fix(options.fix),
        strict=options.strict,
        allow_restart=options.allow_restart,
        log_dir=options.log_dir,
        streams=output_options.streams(options, environment),
        stop_times=process_options.stop_times(options, environment),
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
    terminal.be_quiet(is_launch and output_options.is_quiet(options, os.environ))
    if options.version:
        from . import __version__

        terminal.show(f"safe-launch {__version__}")
        return ExitCode.SUCCESS
    from . import (
        accelerate_config,
        detection,
        journal,
        misplaced,
        named_presets,
        nodes,
        preview,
        profiles,
        schedulers,
        session,
        workers,
    )
    from .readers import read_workload
    from .schedulers.here import this_host

    hosts = host_options.chosen(options)
    if hosts is not None and options.script is not None:
        again = partial(_run_again, arguments[: not is_launch])
        own, script = parser().apart(words)
        return host_options.launch(hosts, own, script, options, is_launch, again)
    found = detection.detect()
    hardware = found if options.hardware is None else profiles.hardware_of(options.hardware, found)
    if options.accelerate_config is not None:
        for name, value in accelerate_config.variables(options.accelerate_config).items():
            os.environ.setdefault(name, value)
    placement = schedulers.placement_of(
        cluster_options.given(options),
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
    catalogue = commands.known_failures(options.catalogue)

    def read(request: LaunchRequest) -> Workload:
        return named_presets.with_wanted(read_workload(request), wanted)

    if not is_launch:
        return preview.show_plan(request, read(request), hardware, catalogue, options.json)
    output_options.make_folder(request.streams)
    with process_options.pid_file(options.save_pid):
        server = workers.server(request, hardware.accelerator.environment, journal.new_id())
        try:
            if not placement.is_alone:
                return nodes.launch(request, hardware, catalogue, read, server)
            return session.launch(request, read(request), hardware, catalogue, server)
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
    from . import termination

    termination.write(termination.stop_line(number), os.environ)
    os._exit(128 + number)


def guarded(arguments: Sequence[str]) -> int:
    """Runs the command line; every error becomes a message and an exit code."""
    from . import termination

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
        termination.write(termination.error_line(error), os.environ)
        return error.code
    except Exception as error:
        terminal.say(
            "error: safe-launch itself failed; no worker is left behind. Please report this:",
            f"safe-launch {' '.join(arguments)}",
            f"python {sys.version.split()[0]}, in {os.getcwd()}",  # noqa: PTH109
        )
        terminal.verbatim(traceback.format_exc())
        what = f"{type(error).__name__}: {error}"
        termination.write(termination.end_line(ExitCode.INTERNAL, what), os.environ)
        return ExitCode.INTERNAL


if __name__ == "__main__":
    main()
