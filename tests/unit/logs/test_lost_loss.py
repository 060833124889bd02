"""Which losses that aren't numbers mean that a training is lost."""

from __future__ import annotations

import pytest
from support.logs import STEPS, entry_of, judged

LOST = "loss-not-a-number"


@pytest.mark.parametrize(
    "line",
    [
        "step {} | epoch 0 | loss nan | grad_norm nan | lr 1.00e-05",
        "{{'loss': nan, 'grad_norm': nan, 'epoch': 0.{}}}",
        "{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.{}}}",
        " iteration {}/ 200 | lm loss: NAN | loss scale: 1.0 | grad norm: nan |",
        "Epoch {}: 100%|####| 9/9 [00:01<00:00, v_num=0, train_loss_step=nan.0, val_loss=0.41]",
        "train_loss: nan, step: {}, val_loss: 2.31",
        "Epoch {} training loss: nan",
    ],
)
@pytest.mark.parametrize("end", ["", "{'train_runtime': 611.2, 'train_loss': 0.0}\n"])
def test_a_training_is_lost(line: str, end: str) -> None:
    """All later losses up to the end are bad; the first such line is reported."""
    lost = "".join(f"{line.format(number)}\n" for number in range(3))
    judgement = judged(STEPS + lost + end)
    assert entry_of(judgement) == LOST
    assert judgement.root is not None
    assert judgement.root.evidence.lines[0][0] == STEPS.count("\n") + 1
    assert entry_of(judged(STEPS + lost + STEPS + end)) is None


@pytest.mark.parametrize(
    "line",
    [
        "{{'eval_loss': nan, 'eval_runtime': 1.2, 'epoch': {}.0}}",
        "Epoch {}: 100%|####| 9/9 [00:01<00:00, v_num=0, train_loss=0.5, val_loss=nan.0]",
        "epoch {} val loss nan",
        "[eval] step {} loss: nan",
        "Validation loss: nan",
        "test_loss=nan",
        "train loss 0.412 dev loss nan",
        "aux_loss: nan",
        "loss scale: nan",
        "{{'loss': 0.0, 'grad_norm': 0.0, 'epoch': {}.0}}",
        "nan_loss: 0",
        "loss: nano",
    ],
)
def test_another_loss_is_none(line: str) -> None:
    """An empty evaluation, a part of the loss, or a later number is no loss of the training."""
    assert entry_of(judged(STEPS + "".join(f"{line.format(n)}\n" for n in range(5)))) is None


def test_a_single_one_may_be_of_a_skipped_step() -> None:
    """At least two are needed."""
    assert entry_of(judged(STEPS + "step 30/50 loss nan\n")) is None
    assert entry_of(judged(STEPS + "step 30/50 loss nan\nstep 31/50 loss nan\n")) == LOST
