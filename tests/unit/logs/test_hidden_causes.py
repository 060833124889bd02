"""The exception behind one that blames an installed package, or quotes it as a value."""

from __future__ import annotations

from io import BytesIO

from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from support.tables import table

SITE = "/opt/env/lib/python3.11/site-packages"
SECOND = "\nDuring handling of the above exception, another exception occurred:\n\n"
HUB = (
    "cannot import name 'cached_download' from 'huggingface_hub'"
    f" ({SITE}/huggingface_hub/__init__.py)"
)


def of(file: str, source: str, said: str) -> str:
    """A traceback of a script and one more frame."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/home/u/train.py", line 1, in <module>\n    import foo\n'
        f'  File "{SITE}/{file}", line 9, in f\n    {source}\n{said}\n'
    )


@table(
    ("log", "root"),
    [
        (
            of("foo_zoo/device.py", "raise NotImplementedError(", "NotImplementedError: No GPU")
            + SECOND
            + of("foo/a.py", "raise ImportError(", "ImportError: Please install foo_zoo"),
            "NotImplementedError: No GPU",
        ),
        (
            of("foo/a.py", "import bar", "ModuleNotFoundError: No module named 'bar'")
            + SECOND
            + of("foo/a.py", "raise ImportError(", "ImportError: Please install bar"),
            "ImportError: Please install bar",
        ),
        (
            of("bar/a.py", "import bar.b", "ModuleNotFoundError: No module named 'bar.b'")
            + SECOND
            + of("../../../home/u/a.py", "raise ImportError(", "ImportError: No bar / bar が無い"),
            "ModuleNotFoundError: No module named 'bar.b'",
        ),
        (
            of("foo_bar/a.py", "import c", "OSError: libc.so.9: cannot open")
            + SECOND
            + of("foo/a.py", "raise ImportError(", "ImportError: foo-bar isn't installed"),
            "OSError: libc.so.9: cannot open",
        ),
        (
            of("foo/a.py", "import bar.b", "ModuleNotFoundError: No module named 'bar.b'")
            + SECOND
            + of("foo/a.py", "raise ImportError(", "ImportError: bar not found"),
            "ImportError: bar not found",
        ),
        (
            of("bar/a.py", "raise ValueError(", "ValueError: a bad value")
            + SECOND
            + of("foo/a.py", "raise RuntimeError(", "RuntimeError: No data found by bar"),
            "RuntimeError: No data found by bar",
        ),
        (
            of("foo/bar/a.py", "import bar", "ModuleNotFoundError: No module named 'bar'").replace(
                f"{SITE}/foo", "/home/u/foo"
            )
            + SECOND
            + of("foo/a.py", "raise ImportError(", "ImportError: Please install bar"),
            "ImportError: Please install bar",
        ),
        (
            of("bar/a.py", "raise ValueError(", "ValueError: a bad value")
            + SECOND
            + of("foo/a.py", "raise RuntimeError(", "RuntimeError: bar has no data"),
            "RuntimeError: bar has no data",
        ),
        (
            f"[ERROR] - Error loading 'dp.a.B':\nImportError(\"{HUB}\")\n"
            + of("hydra/a.py", "raise X(", "hydra.errors.InstantiationException: Error locating B"),
            f"ImportError: {HUB}",
        ),
        (
            of(
                "hydra/a.py",
                "raise X(",
                "hydra.errors.InstantiationException: Error locating 'dp.a.B'\n"
                "Error loading 'dp.a.B':\n"
                "ModuleNotFoundError(\"No module named 'einops'\")\nfull_key: model",
            ),
            "ModuleNotFoundError: No module named 'einops'",
        ),
        (
            of(
                "hydra/a.py",
                "raise X(",
                "hydra.errors.InstantiationException: Error locating 'dp.a.B'\n"
                "ModuleNotFoundError(\"No module named 'dp.a'\")",
            ),
            "hydra.errors.InstantiationException: Error locating 'dp.a.B'",
        ),
        (
            f'ImportError("{HUB}")\n' + of("foo/a.py", "raise X(", "ValueError: too many values"),
            "ValueError: too many values",
        ),
    ],
)
def test_the_hidden_exception_is_the_root(log: str, root: str) -> None:
    """What asks for another package, or follows from no failed import, stays."""
    reader = Reader(())
    reader.read("a.log", BytesIO(log.encode()))
    found = decisive(judge(reader.attempts, ())).root
    assert found is not None
    record = found.finding.record
    said = f"{record.exception.removeprefix('builtins.')}: {record.message}"
    assert said.partition("\n")[0] == root
