"""Names what a failed build of an extension lacks, from the compiler's or linker's first error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ...evidence.failure_record import FailureRecord
from .build_steps import HEADERS, OF_CUDA, OTHERS, SYSTEM
from .step import Case, Step

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
    do = _missing(line) or next((do for words, do in OTHERS if re.search(words, line)), "")
    name = _whose(case)
    do = do.replace("{package}", name or PACKAGE).replace("{whose}", name or "the package")
    return Step(do) if do else None


def isolated_build(case: Case) -> Step | None:
    """A package that is missing in a build's isolated environment."""
    match = re.search(r"No module named '(\w+)", case.message)
    if not match or not any(frame.file.endswith(SETUPS) for frame in case.frames):
        return None
    return Step(
        f"Build in the environment that has {match[1]}: `pip install --no-build-isolation"
        f" {_whose(case) or PACKAGE}`. Otherwise pip and uv build in an empty one. Before, install"
        f" {match[1]}, setuptools, wheel, ninja and packaging there."
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
        known = next((do for words, do in HEADERS if re.match(words, header)), "")
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
    match = next(filter(None, (WHOSE.search(line) for line in case.around.splitlines())), None)
    return (match["name"] or match["extension"]) if match else ""
