"""Recognizes messages of compiled libraries: the library, the meaning, a substitute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...core.quantities import count_of
from .step import Case, Step


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled library: the pattern of its paths, its name, and a substitute."""

    words: re.Pattern[str]
    name: str
    instead: str


@dataclass(frozen=True, slots=True)
class MessageClass:
    """A class of messages of compiled code: the meaning and the remedy, with a library's names."""

    words: re.Pattern[str]
    do: str
    is_of_size: bool = False


OF_FILE = re.compile(
    r"(?P<path>[\w./~+-]*[\w+-]+\.(?:cu|cuh|hip|cc|cpp|cxx|hpp|inl|h))(?::\d+|\b.{0,4}\bline \d+)"
    r"|\bline \d+ (?:in|of)(?: file)? (?P<other>[\w./~+-]+\.(?:cu|cuh|hip|cc|cpp|cxx|hpp|inl|h))\b"
)
"""A place in a compiled source file, as programs in C++ print it."""
LIBRARIES = (
    Library(
        re.compile(r"bitsandbytes"),
        "bitsandbytes",
        "another optimizer than its 8-bit Adam (`optim: adamw_torch_fused`), or load without its"
        " quantization",
    ),
    Library(
        re.compile(r"flash[-_]?att\w*|flash_(?:fwd|bwd)"),
        "flash-attn",
        'another implementation of attention (`attn_implementation="sdpa"`)',
    ),
    Library(
        re.compile(r"xformers"), "xformers", "torch's `scaled_dot_product_attention` in its place"
    ),
    Library(
        re.compile(r"transformer[-_]?engine", re.IGNORECASE),
        "Transformer Engine",
        "the framework's implementation without it (Megatron: `--transformer-impl local`)",
    ),
    Library(
        re.compile(r"\bapex\b|multi_tensor_\w+"),
        "apex",
        "torch's fused optimizers and norms in its place",
    ),
    Library(
        re.compile(r"deepspeed", re.IGNORECASE),
        "DeepSpeed's extension",
        "torch's optimizer (`torch_adam: true`), or no offload",
    ),
    Library(re.compile(r"mamba|causal[-_]conv1d"), "mamba-ssm", "its implementation in Python"),
    Library(re.compile(r"vllm"), "vLLM", "another attention backend (`VLLM_ATTENTION_BACKEND`)"),
)
"""Libraries by a part of their paths, with substitutes."""
CLASSES = (
    MessageClass(
        re.compile(r"invalid configuration argument|grid (?:size|dimension)|INT_MAX|2\^31"),
        "Use {instead}, or the newest {name}, or make the tensors smaller: a kernel of {name} can't"
        " be launched on a tensor that is too large, with more than 2^31 elements, or that has"
        " none.",
        is_of_size=True,
    ),
    MessageClass(
        re.compile(r"no kernel image|invalid device function|unsupported (?:gpu|arch\w*)", re.I),
        "Install a {name} that was built for this GPU, or build it here, or use {instead}: the"
        ' installed {name} has no code for this architecture (`python -c "import torch;'
        ' print(torch.cuda.get_device_capability())"`).',
    ),
    MessageClass(
        re.compile(r"too many resources|shared memory|out of resources"),
        "Use {instead}, or smaller heads or blocks: a kernel of {name} needs more registers or"
        " shared memory than this GPU has.",
    ),
    MessageClass(
        re.compile(r"illegal memory access|misaligned address|illegal instruction"),
        "Use {instead}, or another version of {name}: a kernel of {name} reads memory that isn't"
        " its own, by an index or a shape that it didn't expect. `CUDA_LAUNCH_BLOCKING=1` shows the"
        " Python line.",
    ),
)
"""Classes of messages of compiled code; the first match counts."""
SIZED = re.compile(r"(?:size|numel|element|partition|parameter)", re.IGNORECASE)
LARGE = re.compile(r"(?<![\d.:_-])\d{10,12}(?![\d.])")
LARGEST = 1 << 31
"""Maximum elements that a 32-bit number counts."""
MPI = re.compile(
    r"\bMPI_I(?:nit|NIT)\w*|\bMPI_ERRORS_ARE_FATAL|\bPMI\w*_Init\b"
    r"|OMPI was not built with|not able to aggregate error"
)
"""Messages of MPI libraries that couldn't begin."""
STARTED = (
    (re.compile(r"torch\.distributed\.(?:elastic|run|launch)|\btorchrun\b"), "torchrun"),
    (re.compile(r"deepspeed[./]launcher|launch\.py:\d+:"), "DeepSpeed's launcher"),
    (re.compile(r"\bsrun\b|SLURM"), "srun without an MPI plugin"),
)
WANTS_MPI: Mapping[str, str] = {
    r"tp[-_]comm[-_]overlap|Transformer ?Engine|\bTE\b": (
        "leave out `--tp-comm-overlap`, or upgrade Transformer Engine, which in newer versions"
        " begins over NCCL or gloo"
    ),
    r"horovod|hvd\.": "start it by `horovodrun`, or build Horovod with gloo",
}
"""Settings that begin MPI, and substitutes without it."""

CUDA = re.compile(
    r"CUDA (?:driver )?error: (?P<words>[^.(]+)|Cuda failure (?:\d+ )?'(?P<quoted>[^']+)'"
)
"""An error of the CUDA runtime or driver."""
OF_CUDA: Mapping[str, str] = {
    "peer mapping resources exhausted": (
        "Run fewer processes on the node, or without peer access (`NCCL_P2P_DISABLE=1`): a GPU can"
        " map the memory of only eight others."
    ),
    "invalid resource handle": (
        "Call `torch.cuda.set_device(LOCAL_RANK)` before anything else on the GPU, and make streams"
        " and events in the process that uses them: one of another device or process was used."
    ),
    "too many resources requested for launch": (
        "Use smaller blocks in the kernel, or do without it: it asks for more registers or shared"
        " memory than this GPU has."
    ),
    "initialization error": (
        "Start processes that use the GPU by `spawn`, or don't use CUDA before they are forked: a"
        " forked process can't begin it anew. If nothing is forked, see whether `nvidia-smi` works."
    ),
    "the launch timed out": (
        "Train on a GPU without a display, whose kernels may run longer, or make the batch smaller:"
        " the driver ends long kernels on a GPU that draws the screen."
    ),
    "device kernel image is invalid": (
        "Install the package with the kernel anew, in the build for this CUDA: its compiled code is"
        " damaged or of another CUDA."
    ),
    "operation not permitted when stream is capturing": (
        "Run once without CUDA graphs (vLLM: `enforce_eager=True`; torch.compile: not"
        ' `mode="reduce-overhead"`): a graph can\'t record what was called.'
    ),
}
"""What helps by the words of `cudaGetErrorString`; of the others there are entries."""


def native(case: Case) -> Step | None:
    """The meaning of a compiled library's message, and a substitute for the library."""
    if MPI.search(case.message):
        return _without_mpi(case)
    if (error := CUDA.search(case.message)) is not None:
        words = error["words"] or error["quoted"]
        of_error = next((do for start, do in OF_CUDA.items() if words.startswith(start)), None)
        if of_error is not None:
            return Step(of_error)
    place = OF_FILE.search(case.message)
    if place is None:
        return None
    path = place["path"] or place["other"]
    library = next((known for known in LIBRARIES if known.words.search(path)), None)
    kind = next((known for known in CLASSES if known.words.search(case.message)), None)
    if library is None or kind is None:
        return None
    text = kind.do.format(name=library.name, instead=library.instead)
    if kind.is_of_size and (size := _largest(case)):
        text += (
            f" The log has {count_of(size, 'element')} in one tensor: ZeRO-3's or FSDP's pieces are"
            " smaller than the flat partitions of ZeRO-1 and 2, and more ranks make them smaller,"
            " too."
        )
    return Step(text)


def _largest(case: Case) -> int:
    """The largest number of elements in the log above 31 bits; 0 if none."""
    lines = (line for line in case.around.splitlines() if SIZED.search(line))
    sizes = [int(text) for line in lines for text in LARGE.findall(line)]
    return max((size for size in sizes if size >= LARGEST), default=0)


def _without_mpi(case: Case) -> Step:
    """MPI in processes that another launcher started."""
    around = case.around
    by = next((name for words, name in STARTED if words.search(around)), "another launcher")
    asks = next((do for words, do in WANTS_MPI.items() if re.search(words, around)), "")
    without = asks or "leave out the setting that asks for MPI"
    return Step(
        "Start the ranks by `mpirun -np N` or `srun --mpi=pmix`, with the MPI that the library was"
        f" built with, or {without}: the workers call MPI_Init, but {by} started them, without"
        " MPI."
    )
