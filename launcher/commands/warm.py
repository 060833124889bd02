"""`safe-launch warm`: the processes that launches with `--keep-warm` have left."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path

from ..core.errors import ExitCode
from ..options.parser import Parser
from ..planning.budget import gib
from ..system import terminal
from ..workers.forkserver import warm_servers
from ..workers.forkserver.messages import TARGET
from ..workers.forkserver.warm_servers import WarmServer
from .arguments import add_json

NONE = "nothing is kept: launch with --keep-warm SECONDS"


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_argument("do", choices=("list", "stop"), nargs="?", default="list")
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", default="", help="only those with this in their name"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Lists or ends the kept servers of this user; returns the exit code."""
    # read before the end: an ended process has no command line
    scripts = {server: _script(server) for server in warm_servers.find()}
    scripts = {server: script for server, script in scripts.items() if options.script in script}
    if options.do == "stop":
        scripts = {server: script for server, script in scripts.items() if server.end()}
    if options.json:
        documents = [_document(server, script) for server, script in scripts.items()]
        terminal.show(json.dumps(documents, indent=1))
    elif options.do == "list":
        lines = [_line(server, script) for server, script in scripts.items()]
        terminal.show("\n".join(lines) or NONE)
    else:
        terminal.show("\n".join(f"ended: {script}" for script in scripts.values()) or NONE)
    return ExitCode.SUCCESS


def _line(server: WarmServer, script: str) -> str:
    size = _bytes(server)
    held = f", {gib(size)} GiB" if size else ""
    return f"{script}  {server.left:.0f} s left{held}, process {server.pid}"


def _document(server: WarmServer, script: str) -> dict[str, object]:
    return {
        "script": script,
        "pid": server.pid,
        "seconds_left": round(server.left, 1),
        "bytes": _bytes(server),
    }


def _script(server: WarmServer) -> str:
    """The script or module; the process id if the process can't be read."""
    with suppress(OSError, IndexError):
        words = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
        return words[TARGET].decode(errors="replace")
    return f"process {server.pid}"


def _bytes(server: WarmServer) -> int:
    """Its memory, with its share of pages that workers share; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return 0
