"""The signals that stop a run."""

import signal
from typing import Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the run."""
