"""The script imports a name that accelerate doesn't have."""

import sys

RANKS = 1

if "--advised" in sys.argv:
    from accelerate import Accelerator
else:
    from accelerate import AcceleratorOfNextYear as Accelerator

Accelerator(cpu=True)
