"""`safe-launch metrics`: a run as metrics, once or, for a launch, until its end."""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from select import select
from typing import Any

from ..core.errors import ExitCode, reason_of
from ..options.parser import Parser
from ..report.run_status import RunStatus
from ..system import regular_files, terminal
from . import run_search
from .arguments import add_run, root_of

PACE = 15.0
"""Seconds between two looks at the run, as is usual for scrapers."""
PATIENCE = 2.0
"""Seconds that a scraper may pause."""
WHOLE = 5.0
"""Seconds that a scraper may take in all."""
AT_ONCE = 8
"""Scrapers that are answered concurrently; for another one the oldest is dropped."""
CONTENT = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_run(parser, "; by default the latest run")
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--listener", type=int, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Prints a run as metrics; returns the exit code.

    Raises:
        LaunchError: there is no such run, or prometheus_client is missing.
    """
    from ..session.metrics_process import require_library

    require_library()
    folder = run_search.named_or_latest(options.run, root_of(options))
    if options.file is not None:
        _write_until_the_end(folder, options.file)
    elif options.listener is not None:
        _answer_until_the_end(folder, options.listener)
    else:
        text = _text(run_search.status_of(folder), as_json=options.json)
        terminal.show(text.decode().removesuffix("\n"))
    return ExitCode.SUCCESS


def _text(status: RunStatus, *, as_json: bool) -> bytes:
    from ..report import run_metrics

    return run_metrics.json_line(status) if as_json else run_metrics.openmetrics(status)


def _write_until_the_end(run: Path, file: Path) -> None:
    """Writes the file anew, or adds lines to it, until the launcher closes our input."""
    as_json = file.suffix == ".jsonl"
    is_over = is_told = False
    while True:
        text = _text(run_search.status_of(run), as_json=as_json)
        try:
            if as_json:
                with file.open("ab") as stream:
                    stream.write(text)
            else:
                regular_files.overwrite(file, text)
        except OSError as error:
            if not is_told:
                problem = f"{file} can't be written: {reason_of(error)}"
                terminal.say(f"{problem}; the training doesn't depend on it")
            is_told = True
        if is_over:
            return
        is_over = bool(select([sys.stdin], [], [], PACE)[0])


def _answer_until_the_end(run: Path, listener: int) -> None:
    """Answers scrapers until the launcher closes our input."""
    since: dict[socket.socket, float] = {}
    lock = threading.Lock()

    def drop(request: socket.socket) -> None:
        """Ends a connection, and with it its thread's wait."""
        del since[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    class Handler(BaseHTTPRequestHandler):
        """Serves one document."""

        timeout = PATIENCE

        def do_GET(self) -> None:
            """Answers `/metrics`, and nothing else."""
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            text = _text(run_search.status_of(run), as_json=False)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Logs nothing: scrapers come all the time."""

    class Server(ThreadingHTTPServer):
        """Has a bounded number of threads."""

        daemon_threads = True

        def process_request(self, request: Any, client_address: Any) -> None:
            with lock:
                if len(since) >= AT_ONCE:
                    drop(next(iter(since)))
                since[request] = time.monotonic()
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            with lock:
                since.pop(request, None)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            with lock:
                now = time.monotonic()
                for request in [request for request, at in since.items() if now - at > WHOLE]:
                    drop(request)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignores a scraper that has gone."""

    listening = socket.socket(fileno=listener)
    server = Server(listening.getsockname()[:2], Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
