"""Starts a worker: a file, so that no module of the current folder is ever taken for one of ours.

`python -m` looks there first, and so would its own `runpy`. `-P` would stay in `sys.flags`, which
the script sees and what it spawns inherits.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # this file's folder; the script sets its own

from safe_launch.worker import main

main(sys.argv[1:])
