"""Fails as often as it is told, then trains."""

import pathlib
import sys

marks = pathlib.Path(sys.argv[1])
count = len(list(marks.glob("attempt-*")))
if count < int(sys.argv[2]):
    (marks / f"attempt-{count}").touch()
    raise RuntimeError(f"the weather is bad {sys.argv[3 + count]}")
print("trained")
