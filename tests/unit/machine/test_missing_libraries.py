"""torch_npu without CANN, which breaks the import of torch, is reported before workers start."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.machine.detect import detect
from safe_launch.machine.probes import ascend


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed torch_npu that needs HCCL's library, which the linker lacks."""
    package = tmp_path / "torch_npu"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lib" / "libtorch_npu.so").write_bytes(b"\x7fELF\0libm.so.6\0libhccl.so\0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ascend, "CACHE", tmp_path / "ld.so.cache")
    (tmp_path / "ld.so.cache").write_bytes(b"libm.so.6\0")
    return package / "lib" / "libtorch_npu.so"


def test_it_is_a_note_of_the_host(library: Path, tmp_path: Path) -> None:
    """Every plan and `safe-launch hardware` show the note."""
    assert library.exists()
    (note,) = detect({"PATH": "", "LD_LIBRARY_PATH": f"{tmp_path}::/nowhere"}, tmp_path).notes
    assert "libhccl.so, one of CANN's libraries, isn't found" in note
    assert "set_env.sh" in note


def test_what_is_there_is_no_note(library: Path, tmp_path: Path) -> None:
    """The library is in a listed folder, beside the package, or in the linker's cache."""
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann" / "libhccl.so").touch()
    listed = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path / 'cann'}"}
    assert ascend.missing_libraries(listed) is None
    assert ascend.missing_libraries({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) is None
    assert ascend.missing_libraries({}) is not None
    (library.parent / "libhccl.so").touch()
    assert ascend.missing_libraries({}) is None
    (library.parent / "libhccl.so").unlink()
    ascend.CACHE.write_bytes(b"libm.so.6\0libhccl.so\0")
    assert ascend.missing_libraries({}) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF\0libm.so.6\0", None])
def test_a_library_that_asks_for_nothing_misses_nothing(
    library: Path, content: bytes | None
) -> None:
    """The file has another format, or is absent."""
    if content is None:
        library.unlink()
    else:
        library.write_bytes(content)
    assert ascend.missing_libraries({}) is None
