"""Recognizes causes beside an error: a local address, hidden devices, a proxy, a local disk."""

from __future__ import annotations

import re

from ...catalogue.situation import Device
from ...core.quotation import shortened
from ...system.redaction import redacted
from .ranks import OF_WAITING, TIMEOUT
from .step import Case, Step, run_of

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
NUMBERED = re.compile(r"(?<=network address of \()\d{1,3}(?=, \d+\))|\b0\.0\.0\.[1-9]\d*\b")
"""A host that is a mere number."""
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
LONGEST_ADDRESS = 60
"""Maximum characters to quote."""
NO_DEVICE = re.compile(
    r"invalid device ordinal|Invalid device id|no (?:CUDA|ROCm)-capable device"
    r"|No (?:HIP |CUDA |NPU |XPU )?(?:GPUs|devices) (?:are|were) (?:available|found)"
    r"|no usable (?:\w+ )?accelerator|(?:CUDA|HIP|GPU|NPU)(?: is)? not available"
    r"|(?:cannot|could not|couldn't|can't) find any (?:torch )?accelerator",
    re.IGNORECASE,
)
"""A process that finds fewer devices than it asks for."""
VISIBLE = re.compile(
    r"\b((?:CUDA|HIP|ROCR|GPU_DEVICE|ASCEND_RT)_VISIBLE_DEVICES)(?:['\"]\]?)?\s?[=:]\s?['\"]?(-?[\w,-]*)"
)
OF_AMD = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
SINGLE_DEVICE = re.compile(r"--(gpus-per-task|gpu-bind)[= ](\S+)")
"""Options of Slurm that show each task a part of the node's devices."""
CONTAINER = re.compile(r"--container-|\b(?:pyxis|enroot|docker|podman|apptainer|singularity)\b")
BY_SCRIPT = re.compile(r"\benviron\b[^\n]*_VISIBLE_DEVICES['\"]\]?\s?=")
LOST = "Failed to initialize NVML: Unknown Error"
"""nvidia-smi's words in a container whose device rules were reset
(docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html)."""
BY_RAY = re.compile(r"\bray::|RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO|\bRayTaskError\b")
DRIVER = re.compile(r"^(?:CUDA|HIP) driver error: (?!out of memory)")
"""A call of the driver's interface, which torch makes for expandable segments
(c10/cuda/CUDACachingAllocator.cpp)."""
SEGMENTS = re.compile(
    r"expandable_segments:True|\bunsloth\b|\bvGPU\b|\bGRID\b|\b(?:A|L|H)\d+S?-\d+(?:C|Q)\b|\bWSL|microsoft",
    re.IGNORECASE,
)
"""Signs of expandable segments, or of a card that may not support them."""
CONNECTION = re.compile(
    r"got 0 bytes|[Cc]onnection (?:reset|refused|closed|was likely closed)|Broken pipe"
    r"|recvValue failed|connection to the C10d store has failed|timed out",
)
MESH = re.compile(r"\b(istio(?:-proxy)?|linkerd(?:-proxy)?|envoy)\b", re.IGNORECASE)
MISSING = re.compile(
    r"(?P<path>/[^\s'\":,]+)['\"]? (?:is|was|are) not found"
    r"|No such file or directory: '(?P<file>/[^']+)'"
    r"|(?:not found|find|exist|missing)\b[^/]{0,30}['\" ](?P<other>/[^\s'\":,]+)"
)
WRITTEN = re.compile(
    r"\b(?:sav(?:ed?|ing)|writ(?:ten|ing|es?)|wrote|build(?:ing)?|built|creat(?:ed?|ing)|generat\w+"
    r"|download(?:ed|ing)|extract\w+|preprocess\w+|index(?:ed|ing)?)\b",
    re.IGNORECASE,
)
PART = re.compile(
    r"'(?P<folder>[^']*?(?:checkpoint|global_step|iter|step|epoch)[-_]?\d+)/(?P<part>[^']+)'"
)
READS = re.compile(r"load|resume|restore|open\(|from_json|read", re.IGNORECASE)
LONGEST = 100
"""Maximum characters to quote."""
FACTS = (
    LOST,
    r"\bCUDA:\d+ \(|\bdevice=[\['\"]?\d+, ?\d",
    r"[A-Z]_VISIBLE_DEVICES['\"\]]*\s?[=:]",
    r"\bsrun\b.*--ntasks-per-node",
    r"--gpus-per-task|--gpu-bind",
    r"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    r"expandable_segments:True",
    r"istio|linkerd|envoy",
)
"""Lines to keep beside an error, however far before it."""


def local_address(case: Case) -> Step | None:
    """Names the local or unreachable address, and the right one."""
    messages = "\n".join(f"{raised.exception}: {raised.message}" for raised in case.record.raised())
    messages = messages or case.message
    unresolved = UNRESOLVED.search(messages) or UNRESOLVED.search(case.around)
    if unresolved is not None and not NAMED.fullmatch(unresolved["name"]):
        return Step(_no_address(unresolved["name"]))
    if (number := NUMBERED.search(messages)) is not None:
        return Step(
            "Give node 0's IP address (`--master_addr`, `--rdzv-endpoint`; 127.0.0.1 on one node):"
            f" {number[0]} is no host's. A host's name that is a mere number is taken for an"
            " address within 0.0.0.0/8, where nobody answers."
        )
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
        f" MASTER_ADDR): “{shortened(redacted(name), LONGEST_ADDRESS)}” is neither a host's name"
        " nor an address. DeepSpeed takes the first word that `ssh HOST hostname -I` prints: let"
        " the shell's start-up files (.bashrc) print nothing in non-interactive shells."
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
    address = shortened(redacted(" ".join(quoted.split())), LONGEST_ADDRESS)
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


def hidden_devices(case: Case) -> Step | None:
    """A variable, Slurm or Ray that hides devices from a process that looks for them."""
    if not NO_DEVICE.search(case.message):
        return None
    around = case.around
    if LOST in around:
        return Step(
            f"Start the container anew, as it has lost its GPUs (“{LOST}”), mostly by a reload of"
            " systemd on the host. So that it keeps them, set `native.cgroupdriver=cgroupfs` in"
            " docker's daemon.json (`exec-opts`), or pass each device by `--device /dev/nvidia0`,"
            " /dev/nvidiactl and so on."
        )
    if match := SINGLE_DEVICE.search(around):
        return Step(
            f"Give each task all devices of its node, `--gpus-per-node=N` in place of `{match[0]}`"
            " (or `--gpu-bind=none`): with it a task sees one device alone, as number 0, and the"
            " program takes its local rank for the number. Or choose device 0 in each task."
        )
    set_to = {name: value for name, value in VISIBLE.findall(around) if value}
    if (step := _of_container(set_to, around)) is not None:
        return step
    of_amd = [name for name in OF_AMD if name in set_to]
    if "ROCR_VISIBLE_DEVICES" in of_amd and len(of_amd) > 1:
        others = " ".join(name for name in of_amd if name != "HIP_VISIBLE_DEVICES")
        return Step(
            f"Set HIP_VISIBLE_DEVICES alone (`unset {others}`): {_listed(set_to, of_amd)} are all"
            " set. ROCm counts the devices that ROCR_VISIBLE_DEVICES leaves from 0 again, so that"
            " the others name one that is gone."
        )
    if BY_RAY.search(around):
        return Step(
            "Let Ray leave the devices visible: `export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0`"
            " before `ray start`. Ray hides all devices (CUDA_, HIP_ or"
            " ASCEND_RT_VISIBLE_DEVICES) from an actor with num_gpus=0; a framework that sets them"
            " itself wants RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1 (HIP, ASCEND_RT), or its"
            " newer version."
        )
    if any("," not in value for value in set_to.values()):
        where = "the script sets itself" if BY_SCRIPT.search(around) else "the log shows"
        return Step(
            f"Correct or unset {_listed(set_to, [*set_to])}, which {where}: the process sees"
            " those devices alone, and counts them from 0 again. Start no more ranks than it names."
        )
    return None


def _of_container(set_to: dict[str, str], around: str) -> Step | None:
    """Numbers of the host's devices, in a container that counts its devices from 0 again."""
    of_amd = [name for name in OF_AMD if name in set_to]
    are_later = all(re.match(r"[1-9]", set_to[name]) for name in of_amd)
    if "ROCR_VISIBLE_DEVICES" not in of_amd or not are_later or not CONTAINER.search(around):
        return None
    return Step(
        f"Unset them in the container, or before it starts: `unset {' '.join(of_amd)}`. They are"
        f" the host's ({_listed(set_to, of_amd)}), and a container that sees only these devices"
        " counts them from 0."
    )


def driver_call(case: Case) -> Step | None:
    """A driver that refuses what expandable segments need, as of a virtual GPU."""
    if not DRIVER.search(case.message) or not SEGMENTS.search(case.around):
        return None
    return Step(
        "Turn expandable segments off: `export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False`"
        " (PYTORCH_ALLOC_CONF from torch 2.9 on), after the imports that set it (unsloth's) by"
        " `os.environ`. The driver refuses their calls, as on a virtual GPU (vGPU) without unified"
        " memory: let its host enable that, or pass the whole card through."
    )


def service_mesh(case: Case) -> Step | None:
    """A connection between nodes that goes through a proxy of the cluster."""
    messages = "\n".join(raised.message for raised in case.record.raised()) or case.message
    match = MESH.search(case.around)
    if match is None or not CONNECTION.search(messages):
        return None
    return Step(
        f"Start the pods without the service mesh: the log shows {match[0]} beside them, whose"
        " sidecar proxy accepts the ranks' connections and breaks them. Istio: label the pod"
        ' template `sidecar.istio.io/inject: "false"`; Linkerd: annotate it `linkerd.io/inject:'
        " disabled`; or use a namespace without injection."
    )


def unfinished_checkpoint(case: Case) -> Step | None:
    """A file that a checkpoint's folder lacks when it is to be loaded."""
    match = PART.search(case.message)
    if case.kind != "FileNotFoundError" or match is None:
        return None
    if not any(READS.search(f"{frame.function} {frame.source}") for frame in case.frames[-3:]):
        return None
    folder = match["folder"].rpartition("/")[2]
    return Step(
        f"Resume from the checkpoint before {folder}, and delete or move this folder away: it has"
        f" no {match['part']}, so it is incomplete, as when the job was killed while it saved."
        " If the folder isn't there at all, correct its path, or mount its disk on this node."
    )


def other_nodes_disk(case: Case) -> Step | None:
    """A file that a rank of another node has written to its local disk."""
    match = MISSING.search(case.message)
    if match is None:
        return None
    path = next(filter(None, match.groups()))
    lines = case.record.log_tail
    made = next((line for line in lines if path in line and WRITTEN.search(line)), "")
    rank = case.record.rank
    is_far = rank is not None and rank >= 8
    if not made or not (is_far or NODES.search(case.around)):
        return None
    quoted = shortened(redacted(" ".join(made.split())), LONGEST)
    return Step(
        f"Put {path} on a disk that all nodes share, by the setting or variable of its cache"
        " (HF_HOME, NEMO_HOME, XDG_CACHE_HOME, the data's or output folder), or make it on each"
        f" node: another rank made it (“{quoted}”), and this node doesn't see it, as its disk isn't"
        " shared."
    )


def _listed(values: dict[str, str], names: list[str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in names)
