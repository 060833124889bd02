"""A launch, for a command line without a command."""

from __future__ import annotations

import argparse
import os
import signal
from contextlib import ExitStack

from ..options import output_options, process_options
from ..options.parser import declare
from ..system import terminal
from ..system.signals import REPORT
from . import training
from .training import placement_of, training_of

__all__ = ["declare", "run"]


def run(options: argparse.Namespace) -> int:
    """Trains; returns the exit code.

    Raises:
        LaunchError: the launch isn't possible.
    """
    return training.run(options, _launch_here, is_launch=True)


def _launch_here(options: argparse.Namespace) -> int:
    """Trains on this host; returns the exit code.

    Raises:
        LaunchError: the launch isn't possible.
    """
    from ..nodes import farewell, secret
    from ..system import run_directory, torch_extensions
    from ..workers import start

    placement = placement_of(options, is_launch=True)
    sources = options.secret_file, placement, os.environ
    trust = secret.of_job(*sources, is_required=options.require_secret)
    for number in (*options.signals_to_handle, REPORT):  # for the workers, but none are running
        if signal.getsignal(number) is not signal.SIG_IGN:  # which workers would inherit
            signal.signal(number, lambda _number, _frame: None)
    with process_options.pid_file(is_wanted=options.save_pid), ExitStack() as ending:
        with farewell.on_failure(placement, trust, terminal.say):
            training = training_of(options, is_launch=True, placement=placement)
            request, hardware = training.request, training.hardware
            output_options.make_folder(request.worker_options.streams)
            if placement.is_head:
                run_directory.check_root(request.log_dir)
            torch_extensions.choose(os.environ, request.log_dir, terminal.tell)
            server = start.server(request, hardware.accelerator.environment, run_directory.new_id())
            ending.callback(server.leave)
            from ..session import head, multi_node  # the server imports meanwhile

            workload = training.workload(request)
            prepared = multi_node.prepared(request, hardware, workload, server)
        if prepared is None:
            return head.launch_as_head(training, workload, server)
        return multi_node.launch_with_others(training, prepared, server, trust)
