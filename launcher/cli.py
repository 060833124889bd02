"""The process of the launcher: its signals, its errors, its exit code.

Little is imported before the signals are handled: an interrupted import would print a traceback.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from .core.errors import ExitCode, LaunchError
from .system.signals import REPORT, STOPS


def main() -> NoReturn:
    """The entry point; shows a traceback only for safe-launch's own errors."""
    _handle_signals()
    from .commands import registry
    from .system import terminal

    terminal.open_missing()
    code = guarded(sys.argv[1:])
    command, _ = registry.split(sys.argv[1:])
    if command.only_prints:
        os._exit(code)  # all is printed, and an orderly end would take a tenth of the time
    sys.exit(code)


def _stop(number: int, _frame: object) -> NoReturn:
    """Ends the launcher at once while no worker is running.

    An exception wouldn't do: Python swallows exceptions in callbacks of its import system, where
    most of this time is spent. A container's first process ignores signals that it has no handler
    for.
    """
    try:
        with suppress(Exception):  # it may be half imported
            from .report import pod_status

            pod_status.write(pod_status.stop_line(number), os.environ)
    finally:
        os._exit(128 + number)


def _handle_signals() -> None:
    for number in (*STOPS, REPORT):
        signal.signal(number, _stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # for the workers, but none are running
        signal.signal(number, signal.SIG_IGN)


def _reported(error: LaunchError) -> int:
    """Prints an error that the user must fix; returns the exit code."""
    from .report import pod_status
    from .system import terminal

    terminal.say(f"error: {error.problem}", *([f"hint: {error.hint}"] if error.hint else []))
    pod_status.write(pod_status.error_line(error), os.environ)
    return error.code


def _too_few_files(error: OSError) -> LaunchError:
    """The error for a launch that can't open another file."""
    import resource

    from .core.errors import hint_of

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    problem = f"too many open files: this process may open {limit}, and a launch needs more"
    return LaunchError(problem, hint_of(error))


def guarded(arguments: Sequence[str]) -> int:
    """Runs the command line; every error becomes a message and an exit code."""
    _handle_signals()
    import traceback

    from .core import secrets
    from .report import pod_status
    from .system import redaction, terminal

    redaction.learn([*secrets.in_arguments(arguments), *secrets.in_mapping(os.environ)])
    try:
        from .commands import registry

        code = registry.run(arguments)
        for number in (*STOPS, REPORT):
            signal.signal(number, signal.SIG_IGN)  # nothing is left to stop
        return code
    except LaunchError as error:
        return _reported(error)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return _reported(_too_few_files(error))
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            problem = f"the name of a file is too long: {str(error.filename)[:80]!r}..."
            return _reported(LaunchError(problem))
        terminal.say(
            "error: safe-launch itself failed; no worker is left behind. Please report this:",
            f"safe-launch {' '.join(secrets.hidden_arguments(arguments))}",
            f"python {sys.version.split()[0]}, in {os.environ.get('PWD', '?')}",
        )
        terminal.verbatim(traceback.format_exc())
        what = f"{type(error).__name__}: {error}"
        pod_status.write(pod_status.end_line(ExitCode.INTERNAL, what), os.environ)
        return ExitCode.INTERNAL


if __name__ == "__main__":
    main()
