"""Huawei's NPUs, from the table of `npu-smi info`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from mmap import PROT_READ, mmap
from pathlib import Path

from ...core.units import MIB
from .device import Device, output_of, visible

HCCL = "libhccl.so"
"""The first library that torch_npu links against (DT_NEEDED in its 2.6 wheel)."""
CACHE = Path("/etc/ld.so.cache")
SYSTEMS_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The NPUs visible to torch_npu; a 910C counts as two.

    The variable counts devices in the order of the table, not by the numbers in it.
    """
    text = output_of(("npu-smi", "info"))
    if text is None:
        return ()
    return tuple(visible(parsed(text), environment.get("ASCEND_RT_VISIBLE_DEVICES")))


def missing_libraries(environment: Mapping[str, str]) -> str | None:
    """A warning if torch_npu is installed without CANN's libraries; None otherwise.

    From 2.5 on, torch loads torch_npu on import (`_import_device_backends` in torch/__init__.py),
    so that fails too. The dynamic linker looks beside torch_npu's library, in LD_LIBRARY_PATH, in
    its cache and in the system's folders (ld.so(8)).
    """
    spec = PathFinder.find_spec("torch_npu")
    if spec is None or not spec.origin or environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return None
    beside = Path(spec.origin).parent / "lib"
    try:
        with (beside / "libtorch_npu.so").open("rb") as file:
            is_needed = mmap(file.fileno(), 0, prot=PROT_READ).find(f"\0{HCCL}\0".encode()) >= 0
        is_cached = f"{HCCL}\0".encode() in CACHE.read_bytes()
    except (OSError, ValueError):  # there is none, or it is empty
        return None
    listed = re.split("[:;]", environment.get("LD_LIBRARY_PATH", ""))
    folders = [beside, *map(Path, (*filter(None, listed), *SYSTEMS_FOLDERS))]
    if not is_needed or is_cached or any((folder / HCCL).exists() for folder in folders):
        return None
    return (
        f"torch_npu is installed, but {HCCL}, one of CANN's libraries, isn't found: importing it "
        "will fail, and from torch 2.5 on so will `import torch`. Before the launch `source "
        "/usr/local/Ascend/ascend-toolkit/set_env.sh`, or train on the CPU with `export "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0`"
    )


def parsed(text: str) -> list[Device]:
    """Parses a table of `npu-smi info`.

    The last pair of numbers of a chip's use is the memory in MiB: that of the HBM, if there is any;
    the pair before it is the host's part of a 910A and 0 / 0 on newer chips.
    """
    sizes = ((name, pairs[-1]) for name, use in chips(text) if (pairs := PAIR.findall(use)))
    return [Device("npu", name, int(total) * MIB, int(used) * MIB) for name, (used, total) in sizes]


def chips(table: str) -> Iterator[tuple[str, str]]:
    """The name and the use of each chip in a table of any version and width.

    Each chip has two lines of three cells: number and name first, then the chip's number, sometimes
    with a physical id, its bus and its use. Versions before 21 print no pair of numbers in the
    first line. Processes have more cells.
    """
    name = ""
    for line in table.splitlines():
        cells = line.strip().strip("|").split("|")
        words = cells[0].split()
        if len(cells) != 3 or not words or not words[0].isdecimal():
            continue
        if not all(word.isdecimal() for word in words):
            name = " ".join(words[1:])
        elif name:
            yield name, cells[2].strip()
            name = ""
