"""`python -m safe_launch` is `safe-launch`."""

from .cli import main

main()
