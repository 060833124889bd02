"""Libraries that are missing, and devices that only torch can count, with stubs of packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.placement import Placement
from safe_launch.machine import detect
from safe_launch.machine.detect import counted_by_torch
from safe_launch.options.request_of import workers_of

TORCH = """\
from types import SimpleNamespace
mlu = SimpleNamespace(is_available=lambda: True, device_count=lambda: 4)
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 9)
"""
DEVICES = "def is_available():\n    return True\ndef device_count():\n    return {}\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed torch_npu that needs HCCL's library, which the linker lacks."""
    package = tmp_path / "torch_npu"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lib" / "libtorch_npu.so").write_bytes(b"\x7fELF\0libm.so.6\0libhccl.so\0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(detect, "CACHE", tmp_path / "ld.so.cache")
    (tmp_path / "ld.so.cache").write_bytes(b"libm.so.6\0")
    return package / "lib" / "libtorch_npu.so"


def test_it_is_a_note_of_the_host(library: Path, tmp_path: Path) -> None:
    """Every plan and `safe-launch hardware` show the note."""
    assert library.exists()
    (note,) = detect.detect(
        {"PATH": "", "LD_LIBRARY_PATH": f"{tmp_path}::/nowhere"}, tmp_path
    ).notes
    assert "libhccl.so, one of CANN's libraries, isn't found" in note
    assert "set_env.sh" in note


def test_what_is_there_is_no_note(library: Path, tmp_path: Path) -> None:
    """The library is in a listed folder, beside the package, or in the linker's cache."""
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann" / "libhccl.so").touch()
    listed = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path / 'cann'}"}
    assert detect.missing_libraries(listed) is None
    assert detect.missing_libraries({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) is None
    assert detect.missing_libraries({}) is not None
    (library.parent / "libhccl.so").touch()
    assert detect.missing_libraries({}) is None
    (library.parent / "libhccl.so").unlink()
    detect.CACHE.write_bytes(b"libm.so.6\0libhccl.so\0")
    assert detect.missing_libraries({}) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF\0libm.so.6\0", None])
def test_a_library_that_asks_for_nothing_misses_nothing(
    library: Path, content: bytes | None
) -> None:
    """The file has another format, or is absent."""
    if content is None:
        library.unlink()
    else:
        library.write_bytes(content)
    assert detect.missing_libraries({}) is None


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch for this process, its children, and readers of installed packages."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "xpu.py").write_text(DEVICES.format(2))
    (tmp_path / "torch" / "accelerator.py").write_text("print('a word')\n" + DEVICES.format(3))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def installed(folder: Path, name: str, version: str, entry: str = "") -> None:
    """A package as installed by pip."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(entry)


def test_torchs_own_words(torch: Path) -> None:
    """`auto` is any device; modules without devices count none."""
    installed(torch, "torch", "2.13.0+xpu")
    words = ("xpu", "mlu", "auto", "gpu", "cpu", "part", "two words", "2")
    assert [counted_by_torch(word) for word in words] == [2, 4, 3, 0, 0, 0, 0, 0]


def test_torch_is_not_asked_in_vain(torch: Path) -> None:
    """The import takes seconds, so the build or a package must promise devices."""
    installed(torch, "torch", "2.13.0+cpu")
    assert counted_by_torch("xpu") == 0
    installed(torch, "torch_mlu", "1.2", "[torch.backends]\ntorch_mlu = torch_mlu:load\n")
    assert counted_by_torch("mlu") == 4


def test_words_of_workers() -> None:
    """Their meaning with known devices, and with devices that only torch can count."""
    for word in ("auto", "gpu", "npu", "cuda"):
        assert workers_of(word, "ascend-910b4", 8, 32, Placement())[0] == 8
    for word in ("auto", "gpu", "xpu", "mlu"):
        assert workers_of(word, "unknown", 4, 32, Placement())[0] == 4
    assert workers_of("cpu", "unknown", 4, 32, Placement())[0] == 32
    assert workers_of("auto", "cpu", 0, 32, Placement())[0] == 32
