"""The command line: which command it is, and the training that it describes."""

from __future__ import annotations

import argparse
import gc
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import ExitCode, LaunchError
from ..core.hardware import Hardware
from ..core.placement import Placement
from ..core.reasons import reason_of
from ..core.request import CheckOptions, Fix, LaunchRequest, Limits, WorkerOptions
from ..core.settings import Setting
from ..core.version import VERSION
from ..core.workload import Known, Workload
from ..options import (
    check_options,
    host_options,
    local_rank,
    never_change,
    node_options,
    output_options,
    process_options,
)
from ..options.parser import by_files, by_variables, parsed, parser
from ..options.worker_count import option_of, shows_all_devices, workers_asked
from ..system import terminal
from ..system.signals import REPORT
from ..workload import contradictions
from ..workload.config_files import accelerate
from ..workload.config_files.accelerate import Configuration
from .command import COMMANDS, Command, command_of, run_command

if TYPE_CHECKING:
    from ..catalogue.entry import KnownFailure


@dataclass(frozen=True, slots=True)
class Training:
    """A training, as described by the command line and the machine.

    Attributes:
        request: the user's request.
        hardware: this node's hardware.
        site_entries: known failures of a cluster's own.
        wanted: settings that `--preset` and `--set` ask for.
    """

    request: LaunchRequest
    hardware: Hardware
    site_entries: Sequence[KnownFailure]
    wanted: Mapping[Setting, Known]

    def workload(self, request: LaunchRequest) -> Workload:
        """What is known of the training, given the number of workers of all nodes."""
        from ..planning import engine_on_device, named_presets
        from ..workload.read_workload import read_workload

        engine_on_device.check(self.wanted, self.hardware)
        found = engine_on_device.on_device(read_workload(request), self.hardware)
        return named_presets.with_wanted(found, self.wanted)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code.

    Raises:
        LaunchError: it isn't possible.
    """
    command = command_of(arguments)
    if command.name in COMMANDS:
        return run_command(command)
    _check_folder()
    defaults = by_files(_folder_of(command.words), os.environ)
    default_words = [word for default in defaults for word in default.words]
    words = [*default_words, *by_variables(os.environ), *command.words]
    options = parsed(words)
    options.arguments = local_rank.with_local_rank(options)
    options.never_change[:0] = never_change.elsewhere(defaults, os.environ)
    terminal.be_quiet(wanted=command.is_launch and output_options.is_quiet(options, os.environ))
    terminal.be_verbose(wanted=options.verbose)
    if options.print_completion is not None:
        return run_command(Command("completion", [options.print_completion]))
    if options.json and command.is_launch:
        terminal.say("--json has no effect here: a launch prints no document; `plan --json` does")
    if options.version:
        terminal.show(f"safe-launch {VERSION}")
        return ExitCode.SUCCESS
    for file in dict.fromkeys(default.file for default in defaults):
        of_file = (word for each in defaults if each.file == file for word in each.words)
        terminal.tell(f"defaults {' '.join(of_file)} ({file})")
    hosts = host_options.chosen(
        options, partial(host_options.accelerators, options, is_launch=command.is_launch)
    )
    if hosts is not None and options.script is not None:
        from ..nodes.ssh import launch_on_hosts

        again = partial(_run_again, command.name)
        own, _ = parser().apart(words)
        script = [options.script, *options.arguments]
        return launch_on_hosts.launch(
            hosts, own, script, options, is_launch=command.is_launch, run=again
        )
    if command.is_launch:
        return launch(options)
    gc.disable()  # soon over: to look for garbage would be an eighth of the time
    return plan(options)


def _check_folder() -> None:
    """Checks that the current folder is there.

    Raises:
        LaunchError: it isn't, or can't be entered.
    """
    try:
        Path.cwd()
    except OSError as error:
        problem = f"the current folder can't be used: {reason_of(error)}"
        raise LaunchError(
            ExitCode.USAGE, problem, "it may have been removed: cd to another"
        ) from None


def _folder_of(words: Sequence[str]) -> Path:
    """The script's folder; the current one for a module, which is no file."""
    _, script = parser().apart(words)
    with suppress(OSError):  # it can't be looked at, or no file can have this name
        path = Path(script[0] if script else ".")
        return (path.parent if path.is_file() else Path()).absolute()
    return Path.cwd()


def _run_again(name: str, words: Sequence[str]) -> int:
    return run([name, *words] if name else words)


def plan(options: argparse.Namespace) -> int:
    """Prints the plan, and launches nothing; with `--ask`, of what the script itself says.

    Raises:
        LaunchError: no plan is possible.
    """
    from ..session import plan_command

    training = training_of(options, is_launch=False)
    request, workload = training.request, training.workload(training.request)
    asked = None
    if options.ask is True:
        from ..machine import detect
        from ..session import asking

        here = training.hardware if options.hardware is None else detect.detect()
        asked = asking.ask(request, training.hardware, here)
    return plan_command.show_plan(
        request,
        workload,
        training.hardware,
        training.site_entries,
        as_json=options.json,
        asked=asked,
    )


def launch(options: argparse.Namespace) -> int:
    """Trains; returns the exit code.

    Raises:
        LaunchError: the launch isn't possible.
    """
    from ..nodes import farewell, secret
    from ..system import run_directory, writable_folders
    from ..workers import start

    placement = placement_of(options, is_launch=True)
    given = options.secret_file, placement, os.environ
    trust = secret.of_job(*given, is_required=options.require_secret)
    for number in (*options.signals_to_handle, REPORT):  # for the workers, but none are running
        if signal.getsignal(number) is not signal.SIG_IGN:  # which workers would inherit
            signal.signal(number, lambda _number, _frame: None)
    with process_options.pid_file(is_wanted=options.save_pid), ExitStack() as ending:
        with farewell.told(placement, trust, terminal.say):
            training = training_of(options, is_launch=True, placement=placement)
            request, hardware, site = training.request, training.hardware, training.site_entries
            output_options.make_folder(request.worker_options.streams)
            writable_folders.choose(os.environ, request.log_dir, terminal.tell)
            server = start.server(request, hardware.accelerator.environment, run_directory.new_id())
            ending.callback(server.leave)
            from ..session import launch as single_node  # the server imports meanwhile
            from ..session import multi_node

            workload = training.workload(request)
            own = multi_node.prepared(request, hardware, workload, server)
        if own is None:
            return single_node.launch(request, workload, hardware, site, server)
        read = training.workload
        return multi_node.launch(request, own, hardware, site, read, server, trust)


def placement_of(options: argparse.Namespace, *, is_launch: bool) -> Placement:
    """This launcher's place among those of its job.

    Raises:
        LaunchError: sources contradict each other.
    """
    from ..schedulers import read_placement
    from ..schedulers.this_host import this_host

    given = node_options.given(options), options.node_timeout, os.environ, this_host()
    return read_placement.placement_of(*given, is_launch=is_launch)


def training_of(
    options: argparse.Namespace, *, is_launch: bool, placement: Placement | None = None
) -> Training:
    """The training on this machine that the options describe.

    Args:
        options: the command line's.
        is_launch: it is going to be launched, not only planned.
        placement: this launcher's; None to read it here.

    Raises:
        LaunchError: they are incomplete or invalid.
    """
    from ..machine import detect, named_hardware
    from ..machine.probes import by_torch
    from ..options import misplaced
    from ..planning import named_presets
    from . import lookup

    placement = placement or placement_of(options, is_launch=is_launch)
    found = detect.detect()
    hardware = (
        found if options.hardware is None else named_hardware.hardware_of(options.hardware, found)
    )
    configured, contradicted = accelerate.NONE, list[str]()
    if options.accelerate_config is not None:
        configured = accelerate.read(options.accelerate_config)
        file = str(options.accelerate_config)
        contradicted += contradictions.of_variables(configured.variables, os.environ, file)
        for name, value in configured.variables.items():
            os.environ.setdefault(name, value)
        if configured.devices and not hardware.accelerators and options.hardware is None:
            hardware = detect.unknown_devices(hardware, configured.devices)
    asked, option = option_of(options.nproc, os.environ)
    if asked and not hardware.accelerators and (count := by_torch.counted(asked)):
        hardware = detect.unknown_devices(hardware, f"{option} {asked}", count)
    request = request_of(options, hardware, placement, configured, os.environ)
    gpus = hardware.accelerators if hardware.accelerator.kind in ("cuda", "rocm") else 0
    elsewhere = None if is_launch or options.hardware is None else hardware
    request = process_options.applied(
        request, options, os.environ, gpus, is_launch=is_launch, elsewhere=elsewhere
    )
    decided = configured.workers, configured.source, request.nproc, request.nproc_source
    contradicted += contradictions.of_workers(*decided)
    notes = (*configured.notes, *contradicted, misplaced.line(request, parser().spellings))
    if placement.is_head and any(notes):
        terminal.say(*filter(None, notes))
    if is_launch and options.hardware is not None:
        for problem in named_hardware.contradictions(hardware, found, request.nproc):
            raise LaunchError(ExitCode.USAGE, f"--hardware {options.hardware}: {problem}")
    wanted = named_presets.wanted(options.preset, options.set)
    return Training(request, hardware, lookup.site_entries(options.catalogue), wanted)


def request_of(
    options: argparse.Namespace,
    hardware: Hardware,
    placement: Placement,
    configured: Configuration,
    environment: Mapping[str, str],
) -> LaunchRequest:
    """The launch that the options describe.

    Raises:
        LaunchError: they are incomplete or invalid.
    """
    if options.script is None:
        raise LaunchError(
            ExitCode.USAGE, "no script is given", "safe-launch [options] script.py ..."
        )
    if not (options.module or options.no_python or os.path.lexists(options.script)):
        from ..options import misplaced

        misplaced.refuse_misspelt_command(options.script, (*COMMANDS, "plan"))
    asked, option = option_of(options.nproc, environment)
    if asked is None and placement.nproc is None and configured.workers is not None:
        asked, option = str(configured.workers), configured.source
    nproc, source = workers_asked(
        asked,
        hardware.accelerator.name,
        hardware.accelerators,
        hardware.cores,
        placement,
        option,
    )
    shows_all = shows_all_devices(placement, nproc, hardware.accelerators)
    return LaunchRequest(
        script=options.script,
        is_module=options.module,
        arguments=tuple(options.arguments),
        nproc=nproc,
        nproc_source=source,
        log_dir=options.log_dir,
        metrics=options.metrics,
        limits=Limits(
            *(Fix(options.fix), options.strict, options.allow_restart),
            forget=options.forget,
            asks=options.ask != "off",
            never_changed=never_change.together(options.never_change),
        ),
        worker_options=WorkerOptions(
            streams=output_options.streams(options, environment),
            checks=CheckOptions(options.check, check_options.together(options.mute)),
        ),
        placement=replace(placement, shows_all_devices=shows_all),
    )
