"""Prints on both streams, in pieces, with progress bars, and a lot."""

import os
import sys

rank = os.environ["RANK"]
for number in range(200):
    sys.stdout.write(f"rank {rank} ")
    sys.stdout.write(f"line {number}\n")
print("error of", rank, file=sys.stderr)
for number in range(3):
    sys.stderr.write(f"\rprogress {number}")
sys.stderr.write("\n")
for _ in range(100):
    sys.stdout.write("x" * 99_999 + "\n")
for _ in range(40):
    sys.stdout.write("z" * 100_000)
sys.stdout.write("no newline at the end")
