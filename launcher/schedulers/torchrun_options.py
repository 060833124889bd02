"""torchrun's options for several nodes, and their PET_* variables."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..core.errors import LaunchError
from ..core.nearest import meant, near
from ..core.placement import JoinTimes
from ..system.terminal import Row
from .reported import DIGITS, Reported, Stated, Value, port, stated, whole
from .this_host import Here

OPTIONS = (
    "nnodes",
    "node_rank",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "standalone",
    "master_addr",
    "master_port",
    "local_addr",
)
"""torchrun's options, without `--nproc-per-node`."""
BACKENDS = ("static", "c10d")
USED = (
    *("join_timeout", "timeout", "last_call_timeout"),
    *("keep_alive_interval", "keep_alive_max_attempt"),
)
"""Keys of --rdzv-conf for timeouts, in seconds or attempts."""
WITHOUT_EFFECT = (
    *("close_timeout", "heartbeat_timeout", "read_timeout"),
    *("rank", "use_libuv", "protocol", "etcd_prefix"),
    *("cert", "key", "cacert", "ssl_cert", "ssl_cert_key", "ca_cert"),
)
"""Keys read by torch without effect here: of c10d, static and etcd (torch/distributed/elastic/
rendezvous; use_libuv until torch 2.4)."""
CONFIGURATION = (*USED, "is_host", "store_type")
DEFAULT = "torchrun's default"
C10D_PORT = 29400
"""The default port of torch's c10d (c10d_rendezvous_backend.py)."""
KEEP_ALIVE = (5.0, 3.0)
"""torch's seconds between heartbeats, and the number that may be missed."""
BLANK = " \t\n'\""
"""Characters to strip around a setting of --rdzv-conf."""
YES, NO = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The options in PET_* variables, without empty ones and switches that are off."""
    options = {name: environment.get(f"PET_{name.upper()}", "") for name in OPTIONS}
    if options["standalone"].lower() in NO:
        options["standalone"] = ""
    return {name: value for name, value in options.items() if value}


def spelled(name: str, *, by_variable: bool) -> str:
    """An option in the user's spelling."""
    return f"PET_{name.upper()}" if by_variable else f"--{name.replace('_', '-')}"


def reported(options: Mapping[str, str], *, by_variable: bool, here: Here) -> Reported:
    """The placement stated by options.

    The `options` are by torchrun's names, from the command line or from PET_* variables.

    Raises:
        LaunchError: a value is invalid.
    """
    name = {option: spelled(option, by_variable=by_variable) for option in OPTIONS}
    refuse_backend(options.get("rdzv_backend", "static"), name["rdzv_backend"])
    conf = configuration(options.get("rdzv_conf", ""), name["rdzv_conf"])

    def taken(option: str, parse: Callable[[str, str], Value]) -> Stated[Value] | None:
        text = options.get(option)
        return None if text is None else stated(parse(text, name[option]), name[option])

    result = Reported(
        by="PET_*" if by_variable else "the command line",
        nodes=taken("nnodes", node_range),
        rank=taken("node_rank", whole),
        job=stated(options.get("rdzv_id"), name["rdzv_id"]),
        address=taken("master_addr", lambda text, _: _without_brackets(text)),
        port=taken("master_port", port),
    )
    if "rdzv_endpoint" in options:
        label = name["rdzv_endpoint"]
        address, stated_port = endpoint(options["rdzv_endpoint"], label)
        beside = result.address
        unused = (
            f"; not {beside.source} {beside.value}" if beside and beside.value != address else ""
        )
        listens = result.port if stated_port is None else Stated(stated_port, label)
        result = replace(result, address=Stated(address, f"{label}{unused}"), port=listens)
    if "is_host" in conf:
        return replace(result, is_head=conf["is_host"].lower() in YES)
    if result.address and result.rank is None:
        local_address = _without_brackets(options.get("local_addr", ""))
        head = result.address.value
        return replace(result, owns_address=head == local_address or here.owns(head))
    return result


def _without_brackets(address: str) -> str:
    return address.removeprefix("[").removesuffix("]")


def default_endpoint(*sources: Mapping[str, str]) -> Reported:
    """Torchrun's default for node 0, on this host, from the options of each source by precedence.

    It serves trials of several nodes on one host (torch/distributed/run.py, `--master-addr`;
    c10d_rendezvous_backend.py, `_create_tcp_store`). Without a rank the static backend can't start.
    """
    options = {name: value for source in reversed(sources) for name, value in source.items()}
    if options.get("rdzv_backend") == "c10d":
        listens = None if "master_port" in options else Stated(C10D_PORT, DEFAULT)
        return Reported(
            DEFAULT, address=Stated("localhost", DEFAULT), port=listens, owns_address=True
        )
    return Reported(DEFAULT, address=stated("127.0.0.1" if "node_rank" in options else "", DEFAULT))


def refuse_backend(backend: str, name: str) -> None:
    """Refuses unsupported backends; the nodes always meet at node 0's launcher.

    Raises:
        LaunchError: the backend is etcd, or unknown to torchrun.
    """
    if backend.startswith("etcd"):
        problem = f"{name} {backend}: etcd isn't needed, node 0's launcher replaces it"
        hint = f"{name} c10d, and --rdzv-endpoint HOST:PORT with the host of node 0"
        raise LaunchError(problem, hint)
    if backend not in BACKENDS:
        raise LaunchError(f"{name} {backend!r} is unknown", near(backend, BACKENDS))


def node_range(text: str, name: str) -> tuple[int, int]:
    """Parses the minimum and maximum number of nodes from `N` or `MIN:MAX`.

    Raises:
        LaunchError: the text has neither form.
    """
    match = re.fullmatch(rf"(\d{{1,{DIGITS}}})(?::(\d{{1,{DIGITS}}}))?", text.strip(), re.ASCII)
    if match is None:
        raise LaunchError(f"{name} {text!r} is neither a number nor MIN:MAX")
    least, most = int(match[1]), int(match[2] or match[1])
    if least < 1:
        raise LaunchError(f"{name} {text}: at least one node is needed")
    if most < least:
        raise LaunchError(f"{name} {text}: MIN is greater than MAX")
    return least, most


def endpoint(text: str, name: str) -> tuple[str, int | None]:
    """Host and port of `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.

    An IPv6 address without brackets has no port: its last part would be ambiguous.

    Raises:
        LaunchError: the text has none of these forms.
    """
    text = text.strip()
    match = re.fullmatch(r"\[([^][]+)\](?::([^:/]*))?|([\w.-]+)(?::([^:/]*))?", text)
    host = text if match is None else match[1] or match[3]
    if (match is None or match[1]) and not is_ipv6(host):
        raise LaunchError(f"{name} {text!r} is not of the form HOST, HOST:PORT or [IPV6]:PORT")
    listens = None if match is None else match[2] if match[1] else match[4]
    # torchrun's own --standalone writes localhost:0.
    return host, None if listens in (None, "0") else port(listens, name)


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address, with or without a scope."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def configuration(text: str, name: str) -> dict[str, str]:
    """The settings of --rdzv-conf, without quotes around them.

    Unknown settings have no effect, as in torchrun.

    Raises:
        LaunchError: a setting has no value, or an invalid one.
    """
    result = {}
    for part in filter(None, (part.strip(BLANK) for part in text.split(","))):
        key, _, value = (side.strip(BLANK) for side in part.partition("="))
        if not value:
            raise LaunchError(f"{name}: {key} needs a value, as in {key}=...")
        result[key] = value
        if key == "is_host" and value.lower() not in YES + NO:
            raise LaunchError(f"{name}: is_host={value} is neither true nor false")
        if key == "store_type" and value.lower() != "tcp":
            problem = f"{name}: store_type={value}: the nodes meet over the network, not in a file"
            raise LaunchError(problem, "leave it out")
        if key in USED:
            seconds(value, f"{name}: {key}")
    return result


def unknown_settings(conf: Mapping[str, str]) -> tuple[Row, ...]:
    """A row about unknown keys of --rdzv-conf, if any."""
    known = (*CONFIGURATION, *WITHOUT_EFFECT)
    strange = [key for key in conf if key not in known]
    if not strange:
        return ()
    hints = filter(None, dict.fromkeys(meant(key, known) for key in strange))
    text = f"--rdzv-conf: {', '.join(strange)} has no effect: torch has no such setting"
    return (("note", "; ".join([text, *hints])),)


def seconds(text: str, name: str) -> float:
    """Parses a positive time in seconds.

    Raises:
        LaunchError: the time isn't a positive number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise LaunchError(f"{name} {text}: a number of seconds above 0 is needed")
    return value


def times(conf: Mapping[str, str], silence: float | None) -> JoinTimes:
    """Timeouts from --rdzv-conf and --node-timeout, or the defaults."""
    default = JoinTimes()
    number = {key: float(value) for key, value in conf.items() if key in USED}
    if silence is None and {"keep_alive_interval", "keep_alive_max_attempt"} & number.keys():
        interval = number.get("keep_alive_interval", KEEP_ALIVE[0])
        silence = interval * number.get("keep_alive_max_attempt", KEEP_ALIVE[1])
    return JoinTimes(
        join=number.get("join_timeout", number.get("timeout", default.join)),
        last_call=number.get("last_call_timeout", default.last_call),
        silence=default.silence if silence is None else silence,
    )
