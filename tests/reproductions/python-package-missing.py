"""A package of the training isn't installed."""

import sys

RANKS = 1

if "--advised" not in sys.argv:
    __import__("unsloth")
