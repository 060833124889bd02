"""Runs a scenario of this folder so that in the first attempt its trouble is rank 1's alone.

The other ranks are busy with their first loss for ever, so that they can't raise anything.
"""

from __future__ import annotations

import importlib
import os
import sys
import time

import torch
from torch import nn


def main() -> None:
    scenario = importlib.import_module(sys.argv.pop(1))
    loss_of = scenario.loss_of

    def busy(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, inputs, targets)
        time.sleep(3600)
        return loss

    if os.environ["RANK"] != "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        scenario.loss_of = busy
    scenario.main()


if __name__ == "__main__":
    main()
