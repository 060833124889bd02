"""Checks that the best of several checkpoints is kept, and not the worst."""

from __future__ import annotations

import re

from .finding import Check, Finding

FALLING = {
    *("loss", "nll", "perplexity", "ppl", "wer", "cer", "ter", "per", "eer", "mer"),
    *("rmse", "mse", "mae", "mape", "smape", "error", "fid", "brier"),
}
"""Words for metrics that are better when lower."""
RISING = {
    *("accuracy", "acc", "f1", "precision", "recall", "auc", "auroc", "auprc", "bleu"),
    *("sacrebleu", "chrf", "meteor", "iou", "miou", "dice", "mcc", "matthews", "psnr", "ssim"),
    *("ndcg", "mrr", "reward", "pearson", "spearman", "kappa", "r2"),
}
"""Words for metrics that are better when higher."""
TURNED = {
    *("neg", "negative", "minus", "inverse", "inv", "reduction", "improvement", "drop", "gap"),
    "difference",
}
"""Words that turn a metric's meaning around."""


def worst_kept(metric: str, *, is_greater_better: bool) -> Finding | None:
    """Reports a metric whose name contradicts the direction in which checkpoints are compared.

    Args:
        metric: its name, e.g. `eval_rmse`.
        is_greater_better: whether the checkpoint with the greatest value counts as the best.
    """
    words = {*re.split(r"[^a-z0-9]+", metric.lower())}
    falls, rises = bool(words & FALLING), bool(words & RISING) or "rouge" in metric.lower()
    if words & TURNED or falls == rises or rises == is_greater_better:
        return None
    order, other = ("greatest", "False") if is_greater_better else ("least", "True")
    return Finding(
        Check.SAVED,
        certain=False,
        sentence=f"the checkpoint with the {order} {metric} is kept as the best "
        f"(greater_is_better {is_greater_better}): by its name that is the worst",
        advice=f"Set greater_is_better={other} in the TrainingArguments; its default is True for "
        "every metric whose name doesn't end with loss",
    )
