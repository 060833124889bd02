"""Any input is read or refused in words, in bounded time and memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzz.documents import mutated
from support.fuzz.samples import ARCHIVE
from support.fuzz.targets import TARGETS, Target
from support.tables import table

PIECES = (
    *(b"9" * 12, b"9" * 5000, b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"0x10", b"1_000"),
    *(b"[" * 30_000, b'{"a":' * 30_000, b"(" * 3000, b"- " * 3000, b"&a *a", b"<<: *x", b"? "),
    *(b"\0", b"\r", b"\n", b"\xff\xfe", b"\xc2\xb2", b"\xd9\xa1", b"\xe2\x80\xae", b"\x1b[2J"),
    *(b'"\\ud800"', b"${oc.env:HOME}", b"${a}", b"%s", b"{}", b"!!python/object:os.system", b"~"),
    *(b"[1-99999999999]", b"(x99999999999)", b"slots=99999999999", b"2001-01-01", b"no", b"null"),
)
"""Inputs that break readers."""
BOMB = b"\n".join(
    b"%c: &%c [%s]" % (name, name, b", ".join([b"*%c" % (name - 1)] * 9 if name > 97 else [b"x"]))
    for name in range(97, 107)
)
"""Ten lines of YAML that expand to a billion words if references are copied."""


@st.composite
def damaged(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """A sample with parts removed, inserted or moved."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        others = (
            st.sampled_from((*PIECES, BOMB)) | st.binary(max_size=6) | st.just(data[end : end + 80])
        )
        data = data[:start] + draw(others) + data[end:]
    return data


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Mutations of a target's samples, and unrelated inputs."""
    found = damaged(target.samples) | damaged(target.samples) | st.binary(max_size=60)
    in_json = tuple(sample for sample in target.samples if sample[:1] == b"{")
    return found | mutated(in_json) if in_json else found


@table("target", TARGETS, name=lambda target: target.name.replace(" ", "-"))
def test_a_sample_is_read(target: Target) -> None:
    """Its mutations then differ beyond the first few bytes."""
    for sample in target.samples:
        target.read(sample)


LONG = b"9" * 5000
"""More digits than Python reads (`sys.get_int_max_str_digits`)."""
DEEP = b"[" * 30_000
SHAPE = b"SLURM_JOB_ID=1\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_NNODES=1\nSLURM_NTASKS=2\n"
FOUND = [
    ("presets", b"\x80"),
    ("command lines", b"--nproc=--"),
    ("presets", DEEP),
    ("devices", b"- " * 30_000),
    ("known failures", b"\x80"),
    ("dumps", b'{"entries": [{"process_group": []}]}'),
    ("hostfiles", b"a slots=9999999999998"),
    ("hostfiles", b"a slots=" + LONG),
    ("hostfiles", b"a slots=2\n\na:" + LONG),
    ("variables", SHAPE + b"SLURM_STEP_TASKS_PER_NODE=2(x9999999999998)"),
    ("variables", SHAPE + b"SLURM_STEP_NODELIST=n[1-2][1-9999999999998]"),
    ("variables", SHAPE + b"SLURM_STEP_NODELIST=n" + b"[1]" * 3000),
    ("variables", SHAPE + b"SLURM_HET_SIZE=two"),
    ("variables", b"SLURM_JOB_ID=" + LONG),
    ("variables", b"PET_NNODES=" + LONG),
    ("DeepSpeed's configurations", DEEP),
    ("accelerate's configurations", DEEP),
    ("accelerate's configurations", b"a: 2001-99-99"),
    ("DeepSpeed's configurations", b"{a: 1e999}"),
    ("checkpoints", DEEP),
    ("checkpoints", struct.pack("<Q", 2) + b"[]"),
    ("checkpoints", struct.pack("<Q", 10) + b'{"a": [1]}'),
    ("checkpoints", b"[]"),
    ("checkpoints", b'{"weight_map": [1]}'),
    ("checkpoints", ARCHIVE.replace(b"\x80\x02", b"\xff\x02")),
    ("plans with arguments in JSON", DEEP),
    ("command lines", b"--nproc=+-3"),
    ("command lines", b"--nproc=" + LONG),
    ("command lines", LONG),
]
"""Inputs that once ended in a traceback or took all memory."""


@table(("name", "data"), FOUND, name=lambda one: f"{one[0]}-{one[1][-20:]!r}")
def test_what_was_found_once(name: str, data: bytes) -> None:
    """Earlier findings are refused or read correctly."""
    (target,) = (target for target in TARGETS if target.name == name)
    target.consume(data)


@pytest.mark.timeout(900)  # a hundred plans each, on a possibly busy machine
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
@given(st.data())
def test_anything_is_read_or_refused(target: Target, data: st.DataObject) -> None:
    """No traceback, about a second at most, and at most a gigabyte."""
    target.consume(data.draw(inputs(target)))
