"""Steps for what a build lacks: headers, libraries, compilers, and their packages."""

from __future__ import annotations

import re

PIPS = "$(python -c 'import nvidia.{0}; print(list(nvidia.{0}.__path__)[0])')"
"""Folder of a library in pip's packages."""
TOOLKIT = (
    "Let the build find the CUDA toolkit's headers: `export CUDA_HOME=/usr/local/cuda"
    " CPATH=/usr/local/cuda/include:$CPATH`. They come with a whole toolkit of torch's CUDA version"
    " (`module load cuda`, `conda install -c nvidia cuda-toolkit`, an image tagged `devel`), not"
    " with the driver or a `runtime` image."
)
HEADERS = (
    (
        r"cudnn",
        (
            "Let the compiler find cuDNN's headers: `export"
            f" CUDNN_PATH={PIPS.format('cudnn')} && export CPATH=$CUDNN_PATH/include:$CPATH"
            " LIBRARY_PATH=$CUDNN_PATH/lib:$LIBRARY_PATH`. That is pip's package; else load the"
            " cluster's cuDNN module, or install `libcudnn9-dev-cuda-12`."
        ),
    ),
    (
        r"nccl",
        (
            f"Let the compiler find NCCL's headers: `export NCCL_HOME={PIPS.format('nccl')} &&"
            " export CPATH=$NCCL_HOME/include:$CPATH LIBRARY_PATH=$NCCL_HOME/lib:$LIBRARY_PATH`."
            " That is pip's package; else install `libnccl-dev`."
        ),
    ),
    (
        r"Python\.h|pyconfig\.h",
        (
            "Install the headers of this Python, e.g. for 3.11: `apt-get install"
            " python3.11-dev`. On Red Hat it is `python3.11-devel`; conda's and uv's Pythons"
            " bring theirs."
        ),
    ),
    (
        (
            r"cuda|cu(?:blas|sparse|solver|rand|fft|pti)|nvtx?|nvrtc|nvml|nvToolsExt|thrust/|cub/"
            r"|cooperative_groups|crt/"
        ),
        TOOLKIT,
    ),
    (
        r"hip|roc|rccl|miopen|ck/",
        (
            "Install ROCm's development packages, e.g. `apt-get install rocm-dev hipblas-dev"
            " hipsparse-dev`, and name ROCm's folder: `export ROCM_PATH=/opt/rocm"
            " CPATH=/opt/rocm/include:$CPATH`."
        ),
    ),
    (
        r"acl/|hccl|ascend|torch_npu|graph/",
        (
            "Set CANN's paths before the build: `source"
            " /usr/local/Ascend/ascend-toolkit/set_env.sh`. The headers come with the toolkit"
            " package, not with the runtime."
        ),
    ),
    (
        r"torch/|ATen|c10/|caffe2/",
        (
            "Build against the installed torch: `pip install --no-build-isolation --no-cache-dir"
            " {package}`. Otherwise the package is older or newer than torch: take its release"
            " for it."
        ),
    ),
    (
        r"cutlass|cute/|pybind11|fmt/|googletest|composable_kernel|\w*3rdparty",
        (
            "Fetch the sources that the package includes: `git submodule update --init"
            " --recursive` in its checkout, then build again. A release's archive doesn't have"
            " them."
        ),
    ),
    (
        r"omp\.h",
        "Install a compiler with OpenMP: `apt-get install g++ libomp-dev`.",
    ),
    (
        r"(?:std\w+|limits|string|math|assert|errno|features|c\w+)(?:\.h)?$|bits/|sys/|linux/",
        (
            "Install the compiler's and the C library's headers: `apt-get install"
            " build-essential`. In conda: `conda install -c conda-forge cxx-compiler`."
        ),
    ),
)
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
OTHERS = (
    (
        r"unsupported GNU version|gcc versions later than",
        (
            "Build with a gcc that this CUDA accepts: `apt-get install g++-12 && export CC=gcc-12"
            ' CXX=g++-12 NVCC_PREPEND_FLAGS="-ccbin g++-12"`. The message names the newest.'
        ),
    ),
    (
        r"Unsupported gpu architecture",
        (
            "Use a CUDA toolkit that has this GPU (12.8 or later for Blackwell, 11.8 for Ada and"
            " Hopper), or build for a GPU that it has: `export TORCH_CUDA_ARCH_LIST=...`."
        ),
    ),
    (
        r"Killed|died due to signal (?:9|SIGKILL)",
        (
            "Build with fewer compilers at once, as the host's memory ran out: `export"
            " MAX_JOBS=2`. Or install a wheel that fits torch, CUDA and Python."
        ),
    ),
    (
        r"nvcc['`]?(?:: (?:command )?not found| failed: No such)|No such file.*/nvcc'",
        (
            "Install a CUDA toolkit of torch's CUDA version, or name the one that is there: `export"
            " CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH`."
        ),
    ),
    (
        (
            r"(?:gcc|g\+\+|c\+\+|cc|clang|ninja|cmake|cargo|rustc|hipcc|git|make|`cc`)['`]?"
            r"(?:: (?:command )?not found| failed: No such| not found)|No such file.*'"
            r"(?:\S*/)?(?:gcc|g\+\+|c\+\+|ninja|cmake)'"
        ),
        (
            "Install the compiler and its tools: `apt-get install build-essential ninja-build"
            " cmake`. On a cluster load its module."
        ),
    ),
    (
        r"C\+\+1[47] or later|C\+\+20|-std=c\+\+(?:17|20)|need C\+\+",
        (
            "Build with a newer compiler (gcc 9 or later; 11 for torch 2.6 and later), and the"
            " language standard that torch asks for: `conda install -c conda-forge gxx=11`."
        ),
    ),
    (
        r"CMake Error.*(?:CMake [\d.]+ or higher|Compatibility with CMake)",
        (
            "Install a CMake that fits: `pip install 'cmake>=3.26,<4'`. The message names the"
            " version that is wanted, or that CMake 4 has dropped."
        ),
    ),
    (
        r"CMake Error.*(?:CUDA|nvcc)",
        (
            "Let CMake find the CUDA toolkit, of torch's CUDA version: `export"
            " CUDA_HOME=/usr/local/cuda CUDACXX=/usr/local/cuda/bin/nvcc`."
        ),
    ),
    (
        r"CMake Error.*(?:find_package|Could (?:not|NOT) find)",
        (
            "Install the development files of what CMake doesn't find, or name their folder:"
            " `export CMAKE_PREFIX_PATH=FOLDER`. For Torch it is what `python -c 'import torch;"
            " print(torch.utils.cmake_prefix_path)'` prints, in a build with"
            " `--no-build-isolation`."
        ),
    ),
    (
        r"Visual C\+\+",
        (
            "Install Microsoft's C++ build tools, or a wheel for Windows; many extensions build on"
            " Linux (WSL) alone."
        ),
    ),
    (
        (
            r"was not declared|has no member|no member named|is undefined|no matching function"
            r"|not a member|no instance of|incomplete type|no suitable|does not name a type"
            r"|cannot convert"
        ),
        (
            "Install a release of {whose} that is made for this torch and CUDA, a wheel if there is"
            " one, or the torch that its documentation names: its sources don't fit these headers."
        ),
    ),
)
"""Steps by the error, if no header or library is missing."""
