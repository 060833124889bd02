"""The step after a failed build, from the compiler's or linker's first error."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.catalogue.reader import shipped
from safe_launch.diagnosis.next_step.build import build_error
from safe_launch.diagnosis.next_step.choose import next_step, surer_step
from safe_launch.diagnosis.next_step.installation import missing_line
from safe_launch.evidence.failure_record import FailureRecord, Frame

WHEEL = "ERROR: Failed building wheel for gridsample"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("src/a.cu:3:10: fatal error: cudnn_ops.h: No such file or directory", "CUDNN_PATH=$("),
        ("src/a.cpp:7:10: fatal error: 'nccl.h' file not found", "libnccl-dev"),
        ('src/a.cu(3): error: cannot open source file "cublas_v2.h"', "CUDA_HOME=/usr/local/cuda"),
        ("a.c:1:10: fatal error: Python.h: No such file or directory", "apt-get install python3"),
        ("a.cpp:1:10: fatal error: mpi.h: No such file or directory", "libopenmpi-dev"),
        ("a.cpp:1:10: fatal error: cutlass/gemm.h: No such file or directory", "git submodule"),
        ("a.cpp:1:10: fatal error: hip/hip_fp16.h: No such file or directory", "ROCM_PATH"),
        ("a.cpp:1:10: fatal error: acl/acl.h: No such file or directory", "set_env.sh"),
        ("a.cpp:1:10: fatal error: ATen/ops.h: No such file or directory", "--no-build-isolation"),
        ("a.cpp:1:10: fatal error: cstdint: No such file or directory", "build-essential"),
        ("a.cpp:1:10: fatal error: omp.h: No such file or directory", "libomp-dev"),
        ("a.cpp:1:10: fatal error: rare/odd.h: No such file or directory", "apt-file search rare/"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "$CUDA_HOME/lib64/stubs"),
        ("/usr/bin/ld: cannot find -lcublasLt", "`libcublasLt.so`"),
        ("/usr/bin/ld: cannot find -lnuma", "libnuma-dev"),
        ("ld: cannot find -lrare: No such file or directory", "`librare`"),
        ("h.h:1:2: error: #error -- unsupported GNU version! gcc versions later than 12", "gcc-12"),
        ("nvcc fatal : Unsupported gpu architecture 'compute_120'", "TORCH_CUDA_ARCH_LIST"),
        ("Killed", "MAX_JOBS=2"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=2"),
        ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", "CUDA_HOME"),
        ("error: [Errno 2] No such file or directory: '/opt/cuda/bin/nvcc'", "CUDA_HOME"),
        ("/bin/sh: 1: g++: not found", "apt-get install build-essential"),
        ("t.h:4:2: error: #error You need C++17 to compile PyTorch", "newer compiler"),
        ("a.cpp:9:3: error: 'AT_CHECK' was not declared in this scope", "release of gridsample"),
        ("CMake Error at CMakeLists.txt:60 (find_package): x", "CMAKE_PREFIX_PATH"),
        ("CMake Error: Compatibility with CMake < 3.5 has been removed", "pip install 'cmake"),
        ("CMake Error at a.cmake:2 (message): Failed to find nvcc", "CUDACXX"),
        ("error: Microsoft Visual C++ 14.0 or greater is required.", "build tools"),
    ],
)
def test_what_a_build_lacks(error: str, says: str) -> None:
    """The first error decides, whatever follows; DeepSpeed's trial before it doesn't."""
    trial = "/usr/bin/ld: cannot find -laio: No such file or directory"
    later = "b.cpp:1:1: error: 'x' has no member named 'y'"
    record = FailureRecord(None, 1.0, message=WHEEL, log_tail=(trial, f"      {error}", later))
    assert build_error(record).startswith(error)
    step = next_step(record)
    assert step.rule == "build"
    assert says in step.do
    assert "{" not in step.do.replace("${", "")


@pytest.mark.parametrize(
    ("message", "tail"),
    [
        ("it failed", ("a.cpp:9:3: error: 'x' is undefined",)),
        (WHEEL, ("src/a.cpp:9:3: warning: unused variable",)),
    ],
)
def test_without_a_build_or_an_error(message: str, tail: tuple[str, ...]) -> None:
    """A compiler's line isn't the cause of other failures, nor is a warning one."""
    record = FailureRecord(None, 1.0, message=message, log_tail=tail)
    assert build_error(record) == ""
    assert next_step(record).rule != "build"


def test_the_trial_of_a_library_is_an_error_if_there_is_no_other() -> None:
    """Asynchronous I/O wants it."""
    line = "/usr/bin/ld: cannot find -laio"
    record = FailureRecord(None, 1.0, message=WHEEL, log_tail=(line,))
    assert build_error(record) == line
    assert "libaio-dev" in next_step(record).do


def test_a_package_that_the_builds_own_environment_lacks() -> None:
    """The wheel is built where torch is installed; the same outside of a build isn't."""
    frame = Frame("/tmp/pip-install-1/gridsample/setup.py", 3, "<module>", "import torch")
    record = FailureRecord(
        None, 1.0, "builtins.ModuleNotFoundError", "No module named 'torch'", frames=(frame,)
    )
    step = next_step(record)
    assert (step.rule, "--no-build-isolation" in step.do) == ("isolated-build", True)
    elsewhere = replace(record, frames=(replace(frame, file="/job/train.py"),))
    assert next_step(elsewhere).rule != "isolated-build"


def test_a_library_missing_before_a_vaguer_exception() -> None:
    """Its line is the root unless the exception says more, or it is long ago."""
    line = "libcublasLt.so.12: cannot open shared object file: No such file or directory"
    record = FailureRecord(
        None, 1.0, "builtins.RuntimeError", "Failed to start the kernels.", log_tail=(line, "go on")
    )
    step = next_step(record)
    assert (step.rule, missing_line(record)) == ("missing-library", line.partition(": No")[0])
    assert "find / -name 'libcublasLt.so.12*'" in step.do
    for other in (
        replace(record, message="the loss is 3"),
        replace(record, log_tail=(line, *["step"] * 40)),
        replace(record, message=line),
    ):
        assert missing_line(other) == ""
        assert next_step(other).rule != "missing-library"


@pytest.mark.parametrize(
    ("message", "entry", "rule"),
    [
        (
            "KTO loss can't be packed. Either disable `packing` or set `loss_type` to 'apo'.",
            "trl-settings-contradict",
            "instruction",
        ),
        ("KTO loss can't be packed.", "trl-settings-contradict", None),
        ("Unsloth: You have torch = 2.4 but xformers = 0.1. Please install another.", "", None),
    ],
)
def test_an_instruction_in_a_message_with_a_general_entry(
    message: str, entry: str, rule: str | None
) -> None:
    """It precedes the advice for all cases, but not the entry's variant for this one."""
    known = shipped(entry or "unsloth-stops-with-advice")
    assert known is not None
    step = surer_step(known, FailureRecord(None, 1.0, "builtins.ValueError", message))
    assert (step and step.rule) == rule


SETUP = Frame("/tmp/pip-install-x9/causal-conv1d_416ceeee12/setup.py", 17, "<module>", "import x")


@pytest.mark.parametrize(
    ("tail", "says"),
    [
        (("Collecting numpy", "Collecting flash_attn"), "--no-build-isolation causal-conv1d`"),
        (("pip install --no-build-isolation x",), "`pip install wheel setuptools ninja packaging`"),
    ],
)
def test_a_module_that_a_build_lacks(tail: tuple[str, ...], says: str) -> None:
    """The package's name comes from pip's folder; an option that was given isn't advised."""
    message = "No module named 'wheel'"
    record = FailureRecord(
        None, 1.0, "ModuleNotFoundError", message, frames=(SETUP,), log_tail=tail
    )
    step = next_step(record)
    assert step.rule == "isolated-build"
    assert says in step.do
    assert step.do.count("wheel") < 4
    other = next_step(replace(record, frames=(replace(SETUP, file="<string>"),)))
    assert ("flash_attn`" in other.do) is ("flash_attn" in tail[-1])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (":/usr/local/cuda-11.7/bin/nvcc", "`export CUDA_HOME=/usr/local/cuda-11.7`"),
        ("/data/a:/data/b/rows.json", "Set `CUDA_HOME` to one folder"),
        ("/w/https:/host/rows.json", ""),
        ("s3://bucket/rows.json", ""),
        ("/data/12:30/rows.json", ""),
    ],
)
def test_a_path_that_is_a_list(path: str, says: str) -> None:
    """The variable in the traceback was set like PATH; an address has its colon by right."""
    frames = (replace(SETUP, source="version(CUDA_HOME)"), SETUP)
    message = f"[Errno 2] No such file or directory: '{path}'"
    step = next_step(FailureRecord(None, 1.0, "FileNotFoundError", message, frames=frames))
    assert ("to one folder" in step.do) is bool(says)
    assert says in step.do
