"""Names what a failed build of an extension lacks, from the compiler's or linker's first error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ...evidence.failure_record import FailureRecord
from .step import Case, Step

PIPS = "$(python -c 'import nvidia.{0}; print(list(nvidia.{0}.__path__)[0])')"
"""Folder of a library in pip's packages."""
HEADERS = {
    r"cudnn": (
        "Let the compiler find cuDNN's headers: `export"
        f" CUDNN_PATH={PIPS.format('cudnn')} && export CPATH=$CUDNN_PATH/include:$CPATH"
        " LIBRARY_PATH=$CUDNN_PATH/lib:$LIBRARY_PATH`. That is pip's package; else load the"
        " cluster's cuDNN module, or install `libcudnn9-dev-cuda-12`."
    ),
    r"nccl": (
        f"Let the compiler find NCCL's headers: `export NCCL_HOME={PIPS.format('nccl')} &&"
        " export CPATH=$NCCL_HOME/include:$CPATH LIBRARY_PATH=$NCCL_HOME/lib:$LIBRARY_PATH`."
        " That is pip's package; else install `libnccl-dev`."
    ),
    r"Python\.h|pyconfig\.h": (
        "Install the headers of this Python, e.g. for 3.11: `apt-get install"
        " python3.11-dev`. On Red Hat it is `python3.11-devel`; conda's and uv's Pythons"
        " bring theirs."
    ),
    (
        r"cuda|cu(?:blas|sparse|solver|rand|fft|pti)|nvtx?|nvrtc|nvml|nvToolsExt|thrust/|cub/"
        r"|cooperative_groups|crt/"
    ): (
        "Install a whole CUDA toolkit of torch's CUDA version, with its headers, or let the build"
        " find the one that is there: `export CUDA_HOME=/usr/local/cuda"
        " CPATH=/usr/local/cuda/include:$CPATH`. It comes by `module load cuda`, `conda install -c"
        " nvidia cuda-toolkit` or an image tagged `devel`, not with the driver or `runtime` images."
    ),
    r"hip|roc|rccl|miopen|ck/": (
        "Install ROCm's development packages, e.g. `apt-get install rocm-dev hipblas-dev"
        " hipsparse-dev`, and name ROCm's folder: `export ROCM_PATH=/opt/rocm"
        " CPATH=/opt/rocm/include:$CPATH`."
    ),
    r"acl/|hccl|ascend|torch_npu|graph/": (
        "Set CANN's paths before the build: `source"
        " /usr/local/Ascend/ascend-toolkit/set_env.sh`. The headers come with the toolkit"
        " package, not with the runtime."
    ),
    r"torch/|ATen|c10/|caffe2/": (
        "Build against the installed torch: `pip install --no-build-isolation --no-cache-dir"
        " {package}`. Otherwise the package is older or newer than torch: take its release"
        " for it."
    ),
    r"cutlass|cute/|pybind11|fmt/|googletest|composable_kernel|\w*3rdparty": (
        "Fetch the sources that the package includes: `git submodule update --init"
        " --recursive` in its checkout, then build again. A release's archive doesn't have"
        " them."
    ),
    r"omp\.h": "Install a compiler with OpenMP: `apt-get install g++ libomp-dev`.",
    r"(?:std\w+|limits|string|math|assert|errno|features|c\w+)(?:\.h)?$|bits/|sys/|linux/": (
        "Install the compiler's and the C library's headers: `apt-get install"
        " build-essential`. In conda: `conda install -c conda-forge cxx-compiler`."
    ),
}
"""Steps by the missing header; the first that matches from its beginning."""
SYSTEM = {
    "mpi": "libopenmpi-dev",
    "libaio": "libaio-dev",
    "aio": "libaio-dev",
    "infiniband/verbs": "libibverbs-dev",
    "ibverbs": "libibverbs-dev",
    "numa": "libnuma-dev",
    "zlib": "zlib1g-dev",
    "z": "zlib1g-dev",
    "ffi": "libffi-dev",
    "sndfile": "libsndfile1-dev",
    "lzma": "liblzma-dev",
    "openssl/ssl": "libssl-dev",
    "ssl": "libssl-dev",
    "crypto": "libssl-dev",
    "GL/gl": "libgl1-mesa-dev",
}
"""Debian's packages by header or library."""
OF_CUDA = re.compile(
    r"(?:cudart|cublas\w*|cusparse\w*|cusolver\w*|curand|cufft\w*|nvrtc|nvToolsExt)$"
)
OTHERS = {
    r"unsupported GNU version|gcc versions later than": (
        "Build with a gcc that this CUDA accepts: `apt-get install g++-12 && export CC=gcc-12"
        ' CXX=g++-12 NVCC_PREPEND_FLAGS="-ccbin g++-12"`. The message names the newest.'
    ),
    r"Unsupported gpu architecture": (
        "Use a CUDA toolkit that has this GPU (12.8 or later for Blackwell, 11.8 for Ada and"
        " Hopper), or build for a GPU that it has: `export TORCH_CUDA_ARCH_LIST=...`."
    ),
    r"Killed|died due to signal (?:9|SIGKILL)": (
        "Build with fewer compilers at once, as the host's memory ran out: `export"
        " MAX_JOBS=2`. Or install a wheel that fits torch, CUDA and Python."
    ),
    r"nvcc['`]?(?:: (?:command )?not found| failed: No such)|No such file.*/nvcc'": (
        "Install a CUDA toolkit of torch's CUDA version, or name the one that is there: `export"
        " CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH`."
    ),
    (
        r"(?:gcc|g\+\+|c\+\+|cc|clang|ninja|cmake|cargo|rustc|hipcc|git|make|`cc`)['`]?"
        r"(?:: (?:command )?not found| failed: No such| not found)|No such file.*'"
        r"(?:\S*/)?(?:gcc|g\+\+|c\+\+|ninja|cmake)'"
    ): (
        "Install the compiler and its tools: `apt-get install build-essential ninja-build"
        " cmake`. On a cluster load its module."
    ),
    r"C\+\+1[47] or later|C\+\+20|-std=c\+\+(?:17|20)|need C\+\+": (
        "Build with a newer compiler (gcc 9 or later; 11 for torch 2.6 and later), and the"
        " language standard that torch asks for: `conda install -c conda-forge gxx=11`."
    ),
    r"CMake Error.*(?:CMake [\d.]+ or higher|Compatibility with CMake)": (
        "Install a CMake that fits: `pip install 'cmake>=3.26,<4'`. The message names the"
        " version that is wanted, or that CMake 4 has dropped."
    ),
    r"CMake Error.*(?:CUDA|nvcc)": (
        "Let CMake find the CUDA toolkit, of torch's CUDA version: `export"
        " CUDA_HOME=/usr/local/cuda CUDACXX=/usr/local/cuda/bin/nvcc`."
    ),
    r"CMake Error.*(?:find_package|Could (?:not|NOT) find)": (
        "Install the development files of what CMake doesn't find, or name their folder:"
        " `export CMAKE_PREFIX_PATH=FOLDER`. For Torch it is what `python -c 'import torch;"
        " print(torch.utils.cmake_prefix_path)'` prints, in a build with"
        " `--no-build-isolation`."
    ),
    r"Visual C\+\+": (
        "Install Microsoft's C++ build tools, or a wheel for Windows; many extensions build on"
        " Linux (WSL) alone."
    ),
    (
        r"was not declared|has no member|no member named|is undefined|no matching function"
        r"|not a member|no instance of|incomplete type|no suitable|does not name a type"
        r"|cannot convert"
    ): (
        "Install a release of {whose} that is made for this torch and CUDA, a wheel if there is"
        " one, or the torch that its documentation names: its sources don't fit these headers."
    ),
}
"""Steps by the error, if no header or library is missing."""
FAILED = re.compile(
    r"Error (?:building|compiling objects for) extension|Fail(?:ed|ure) (?:to build|building)"
    r"|[Cc]ould not build wheels|metadata-generation-failed|ninja: build stopped"
    r"|\['ninja', |build_ext|bdist_wheel|error: command '\S+' failed"
)
"""Report on a failed build, without its cause."""
ERROR = re.compile(
    r"\bfatal error: |\berror: #error |\berror C\d+: |[^\s:]:\d+: (?:\w+ )?error: "
    r"|\S+\(\d+\): (?:catastrophic )?error: "
    r"|^nvcc (?:fatal|error) *: |\bld(?:\.\w+)?: (?:error: )?(?:cannot|unable to) find "
    r"|^(?:\S*sh: )?(?:line )?(?:\d+: )?\S+: (?:command )?not found$|^Killed$|CMake Error"
    r"|\[Errno 2\] No such file or directory: '\S*(?:nvcc|hipcc|gcc|g\+\+|c\+\+|ninja|cmake)'"
    r"|error: command '\S+' failed: No such file|unrecognized command.line option"
    r"|Microsoft Visual C\+\+ .*is required|error: linker `\w+` not found"
)
"""The compiler's, linker's or shell's error."""
SETUPS = ("setup.py", "<string>")
"""Files that run only in a build."""
PROBED = re.compile(r"-l(?:aio|cufile)\b")
"""Libraries that DeepSpeed tries to link at its import."""
WHOSE = re.compile(
    r"(?:[Ff]ailed building wheel for|building extension|building '|Failed to build) ['`\"]?"
    r"(?P<name>[A-Za-z][\w-]*)|building '(?P<extension>[\w.]+)' extension"
)
BUILT = re.compile(
    r"/pip-install-[^/\s]+/(?P<source>[A-Za-z][\w.-]*?)_[0-9a-f]{8,}/"
    r"|^\s*Collecting (?P<collected>[A-Za-z][\w-]*)"
)
"""The folder of a package that pip builds, or the package that pip downloads."""
TOOLS = ("setuptools", "wheel", "ninja", "packaging")
"""What the builds of compiled packages need in their environment."""
HEADER = re.compile(
    r"fatal error: ['\"]?(?P<gcc>[\w./+-]+?)['\"]?(?:: No such file| file not found)"
    r"|(?:cannot open source file|Cannot open include file:) ['\"](?P<nvcc>[\w./+-]+)['\"]"
)
LIBRARY = re.compile(r"(?:cannot|unable to) find (?:library )?-l ?(?P<name>[\w.+-]+)")
PACKAGE = "PACKAGE"
"""Its name in a command if the log doesn't have it."""


def build(case: Case) -> Step | None:
    """The step for the first error of a failed build."""
    line = build_error(case.record)
    if not line:
        return None
    do = _missing(line) or next((do for words, do in OTHERS.items() if re.search(words, line)), "")
    name = _whose(case)
    do = do.replace("{package}", name or PACKAGE).replace("{whose}", name or "the package")
    return Step(do) if do else None


def isolated_build(case: Case) -> Step | None:
    """A module that is missing in a build: in pip's empty environment, or in the one it runs in."""
    match = re.search(r"No module named '(\w+)", case.message)
    if not match or not any(frame.file.endswith(SETUPS) for frame in case.frames):
        return None
    package = _whose(case) or PACKAGE
    if "--no-build-isolation" in case.around:
        first = " ".join(dict.fromkeys((match[1], *TOOLS)))
        return Step(
            f"Install what the build needs, then {package} again: `pip install {first}`. With"
            f" `--no-build-isolation` it builds in this environment, which lacks {match[1]}."
        )
    *others, last = dict.fromkeys((match[1], *TOOLS))
    return Step(
        f"Build in the environment that has {match[1]}: `pip install --no-build-isolation"
        f" {package}`. Otherwise pip and uv build in an empty one. Before, install"
        f" {', '.join(others)} and {last} there."
    )


def build_error(record: FailureRecord) -> str:
    """The compiler's or linker's first error if a build failed; otherwise empty."""
    messages = [raised.message for raised in record.raised()] or [record.message]
    if not any(FAILED.search(text) for text in messages):
        return ""
    return _first(messages[0].splitlines()[1:]) or _first(record.log_tail)


def _first(lines: Sequence[str]) -> str:
    """The first error; DeepSpeed's trials count only if there is no other."""
    texts = [" ".join(line.split()) for line in lines]
    errors = [
        f"{text} {below}" if text.startswith("CMake") else text
        for text, below in pairwise([*texts, ""])
        if ERROR.search(text)
    ]
    return next((line for line in errors if not PROBED.search(line)), next(iter(errors), ""))


def _missing(line: str) -> str:
    """The step for a missing header or library."""
    if match := HEADER.search(line):
        header = match["gcc"] or match["nvcc"]
        name = re.sub(r"\.\w+$", "", header)
        if name in SYSTEM:
            return _install(f"the headers of {header}", SYSTEM[name])
        known = next((do for words, do in HEADERS.items() if re.match(words, header)), "")
        return known or (
            f"Install the package that has `{header}` (`apt-file search {header}`; in conda and pip"
            " often under the library's name), or add its folder to the compiler's: `export"
            " CPATH=FOLDER:$CPATH`."
        )
    if match := LIBRARY.search(line):
        name = match["name"]
        if name in SYSTEM:
            return _install(f"`lib{name}`", SYSTEM[name])
        if name == "cuda":
            return (
                "Link with the stub of the driver's library: `export"
                " LIBRARY_PATH=$CUDA_HOME/lib64/stubs:$LIBRARY_PATH`. The driver itself brings only"
                " libcuda.so.1, and only where there is a GPU."
            )
        if OF_CUDA.match(name):
            return (
                f"Show the linker where the CUDA toolkit has `lib{name}.so`: `export"
                " LIBRARY_PATH=$CUDA_HOME/lib64:$CUDA_HOME/lib64/stubs:$LIBRARY_PATH`."
            )
        return (
            f"Install the development package of `lib{name}`, or show the linker its folder:"
            " `export LIBRARY_PATH=FOLDER:$LIBRARY_PATH`."
        )
    return ""


def _install(what: str, package: str) -> str:
    return (
        f"Install {what}: `apt-get install {package}`. Without root take conda's package or the"
        " cluster's module, and add its `include` to CPATH and its `lib` to LIBRARY_PATH."
    )


def _whose(case: Case) -> str:
    """The package or extension that is built; empty if the log doesn't name it."""
    lines = case.around.splitlines()
    match = next(filter(None, map(WHOSE.search, lines)), None)
    if match is not None:
        return str(match["name"] or match["extension"])
    built = [*filter(None, map(BUILT.search, lines))]
    named = next((each["source"] for each in built if each["source"]), "")
    return named or next((each["collected"] for each in reversed(built)), "")
