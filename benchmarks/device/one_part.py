"""Runs one part of scripts/device-check in a separate process, to isolate its faults.

    python one_part.py NAME BENCH FIGURES

Every figure is a line of JSON in the file FIGURES once it is known. The last line has `error` if
the part failed, or `skipped` with the reason.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:1] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from device.bench import Bench, SkippedError  # noqa: E402


def main() -> None:
    """Runs the part."""
    name, bench, figures = sys.argv[1:]
    with Path(figures).open("w", buffering=1) as file:
        try:
            for figure in import_module(f"device.{name}").run(Bench.read(Path(bench))):
                print(json.dumps(asdict(figure)), file=file)
        except SkippedError as skipped:
            print(json.dumps({"skipped": str(skipped)}), file=file)
        except Exception:
            print(json.dumps({"error": traceback.format_exc()}), file=file)


if __name__ == "__main__":
    main()
