"""Recognizes connections to another node through an address that is local to each node."""

from __future__ import annotations

import re

from ...catalogue.device import Device
from ...core.quotation import shortened
from ...system.redaction import redacted
from .busy_rank import OF_WAITING, TIMEOUT
from .run_kind import run_of
from .step import Case, Step

LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1|0\.0\.0\.0")
BRIDGE = re.compile(r"172\.17\.0\.\d+")
"""Addresses of containers in docker's default network (docs.docker.com/engine/network/)."""
REACHED = re.compile(
    r"trying to connect to \((?P<store>[^,()\s]+), \d+\)"
    r"|failed to connect to \[(?P<socket>[^\]\s]+)\]:\d+"
    r"|connectFullMesh failed\b.*?\bremote=\[(?P<gloo>[^\]]+)\]"
    r"|\bconnect \[(?P<pair>[^\]]+)\]:\d+: (?:Connection|No route|Network)"
    r"|\b[Cc]onnect(?:ing)? to (?:address )?(?P<nccl>[\d.]+)<\d+>"
    r"|\bipv4:(?P<ray>[\d.]+):\d+: Failed to connect"
)
"""Messages of c10d, gloo, NCCL and Ray's gRPC on a failed connection: socket.cpp, pair.cc,
socket.cc."""
OF_INTERFACE = ("gloo", "pair", "nccl")
"""Groups with an address that a library took from an interface; the others were given."""
STATED = re.compile(
    r"(?:rdzv[-_]endpoint|master[-_]?addr(?:ess)?|main_process_ip|init[-_](?:addr|method))\W{1,24}?"
    r"(?:tcp://)?(?P<given>localhost|127(?:\.\d+){3}|0\.0\.0\.0)\b(?::\d+)?",
    re.IGNORECASE,
)
UNRESOLVED = re.compile(r"network addresses of \((?P<name>[^,()]*), \d+\) cannot be retrieved")
NAMED = re.compile(r"[\w.:%-]+")
"""A host's name or address."""
MEETS = re.compile(r"Rendezvous(?:Timeout|Connection)Error|waiting for clients\. \d+/\d+ clients")
"""Failures of nodes that meet at a given address, without the address."""
NODES = re.compile(
    r"\b(?:nnodes|num_nodes|num_machines|(?:min|max)_nodes|SLURM_(?:JOB_NUM_|N)NODES)['\"]?\s*[=: ]"
    r"\s*(?:\d+:)?(?:[2-9]|\d{2,})\b"
    r"|\b(?:node|machine)[-_]rank['\"]?\s*[=: ]\s*[1-9]"
    r"|\b(?:[2-9]|\d{2,}|two|three|four|both|several|multiple) (?:\w+ )?(?:nodes|machines|hosts)\b"
    r"|\bmulti-?node\b",
    re.IGNORECASE,
)
PLACED = re.compile(r"\brank[=: ]+(\d+),? local_rank[=: ]+(\d+)")
LONGEST = 60
"""Maximum characters to quote."""


def local_address(case: Case) -> Step | None:
    """Names the local or unreachable address, and the right one."""
    messages = "\n".join(f"{raised.exception}: {raised.message}" for raised in case.record.raised())
    messages = messages or case.message
    unresolved = UNRESOLVED.search(messages) or UNRESOLVED.search(case.around)
    if unresolved is not None and not NAMED.fullmatch(unresolved["name"]):
        return Step(_no_address(unresolved["name"]))
    tried = [*REACHED.finditer(messages)]
    is_meeting = MEETS.search(messages) is not None
    is_waiting = TIMEOUT.search(messages) is not None and OF_WAITING.search(messages) is not None
    if not tried and (is_meeting or is_waiting):
        tried += REACHED.finditer(case.around)
    if is_meeting:
        tried += STATED.finditer(case.around)
    library = "HCCL" if run_of(case).device is Device.NPU else "NCCL"
    variables = f"{library}_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0"
    for match in tried:
        name = str(match.lastgroup)
        address = match[name]
        if name == "ray" and LOOPBACK.fullmatch(address):
            return Step(_of_ray(address))
        if BRIDGE.fullmatch(address):
            return Step(_of_docker(address, variables))
        if LOOPBACK.fullmatch(address) and _has_nodes(case):
            is_chosen = name in OF_INTERFACE
            text = _of_interface(address, variables) if is_chosen else _of_loopback(match[0])
            return Step(text)
    return None


def _no_address(name: str) -> str:
    return (
        "Give node 0's address by hand (`--master_addr`, accelerate's `--main_process_ip`,"
        f" MASTER_ADDR): “{shortened(redacted(name), LONGEST)}” is neither a host's name nor an"
        " address. DeepSpeed takes the first word that `ssh HOST hostname -I` prints: let the"
        " shell's start-up files (.bashrc) print nothing in non-interactive shells."
    )


def _of_docker(address: str, variables: str) -> str:
    return (
        "Start containers with `--network=host`, and name the interface that the other nodes reach"
        f" (`export {variables}`): {address} is an address in docker's own network, which no other"
        " host reaches. With Ray give it `--node-ip-address`, too, with vLLM VLLM_HOST_IP."
    )


def _of_ray(address: str) -> str:
    return (
        "Start Ray's head with its real address, as the other nodes reach it (`hostname -I`):"
        f" `ray start --head --node-ip-address ADDRESS`. Its processes announce {address}, which is"
        " each node's own, so calls from another node find nobody."
    )


def _of_interface(address: str, variables: str) -> str:
    return (
        "Name each node's network interface, as `ip route get ADDRESS_OF_ANOTHER_NODE` shows it:"
        f" `export {variables}`. Without it the library took {address}, which every node has;"
        " mostly since the node's name resolves to it, which /etc/hosts or the pod's settings can"
        " mend."
    )


def _of_loopback(quoted: str) -> str:
    address = shortened(redacted(" ".join(quoted.split())), LONGEST)
    return (
        "Give all nodes the host name or address of node 0 as the others reach it (`hostname -I`"
        f" there) in `--rdzv_endpoint` or MASTER_ADDR: “{address}” is each node's own, so none"
        " finds another. See how the script got it: `hostname -i` gives what /etc/hosts has, often"
        " 127.0.1.1, and a container without `scontrol` can't ask Slurm."
    )


def _has_nodes(case: Case) -> bool:
    """Whether the log shows several nodes."""
    around = case.around
    places = (rank != local for rank, local in PLACED.findall(around))
    return NODES.search(around) is not None or any(places)
