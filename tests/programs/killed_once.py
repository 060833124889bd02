"""Runs a Trainer's script (`SCRIPT ARGUMENTS`); once, its rank 1 is killed after the fifth step."""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

DONE = Path("killed")


class Kill(TrainerCallback):
    """Kills."""

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """At the fifth step."""
        if state.global_step == 5 and os.environ["RANK"] == "1" and not DONE.exists():
            DONE.touch()
            os.kill(os.getpid(), signal.SIGKILL)


construct = Trainer.__init__


def with_kill(self: Trainer, *args: Any, **kwargs: Any) -> None:
    """Makes a Trainer with it."""
    construct(self, *args, **kwargs)
    self.add_callback(Kill())


Trainer.__init__ = with_kill
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
