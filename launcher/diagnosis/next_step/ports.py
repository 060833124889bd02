"""Advises on a port that another process has, by who wanted it."""

from __future__ import annotations

import re

from .step import Case, Step

TAKEN = re.compile(
    r"\[?Errno:? ?98\]?|EADDRINUSE|[Aa]ddress already in use|\[WinError 10048\]|port .{0,20}in use"
)
CLOSED = re.compile(r"failed to bind to \S*:(?P<port>\d{1,3}) \(errno: 13\b")
"""A port that only root may open."""
PORT = re.compile(r"(?:\bport\b[=: '\"]{1,4}|(?:\d|\]|localhost|\*|'):|', )(\d{4,5})\b")
OPTION = re.compile(r"(--[\w-]*port)[= ](\d{2,5})\b")
ENGINES = re.compile(r"\bEngineCore\b|\bvLLM\w*\b|(?:^|[/ ])(?:vllm|sglang)/|\bsglang\.srt\b", re.M)
RENDEZVOUS = re.compile(r"torch/distributed/(?:rendezvous|elastic|launcher)|MASTER_PORT")


def taken_port(case: Case) -> Step | None:
    """Whose port is taken, and which setting changes it."""
    if closed := CLOSED.search(case.message):
        return Step(
            f"Choose a port from 1024 on, such as 29500, in place of {closed['port']} (torchrun:"
            " `--master_port`, accelerate: `--main_process_port`): lower ones are closed to users"
            " other than root."
        )
    if not TAKEN.search(case.message):
        return None
    found = PORT.search(case.message)
    port = found[1] if found else ""
    where = f"port {port}" if port else "this port"
    see = f"`ss -ltnp{f' | grep {port}' if port else ''}` shows who has it"
    options = [one for one in OPTION.finditer(case.around) if port == one[2]]
    if options:
        return Step(
            f"Give another number with `{options[-1][1]}`, in every command that has it, or end a"
            f" leftover of your own: {see}."
        )
    if ENGINES.search(case.around) and not any(RENDEZVOUS.search(f.file) for f in case.frames):
        return Step(
            "End engines that an earlier run has left, or choose another port for this connection:"
            f" an engine of vLLM or SGLang wanted to listen on {where}, not torchrun's MASTER_PORT"
            f" ({see}). If the engine chose it by itself, start the engines one after another, or"
            " give each its VLLM_PORT."
        )
    return Step(
        f"End a leftover of your own on {where}, or choose another port for this program: {see}."
    )
