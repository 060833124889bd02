"""Checks that trained weights are saved, whole and as they are now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

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

Shapes = Mapping[str, Sequence[int]]


def empty(shapes: Shapes, live: Shapes) -> Finding | None:
    """Reports weights saved empty, as partitioned weights are on every rank.

    Args:
        shapes: what was saved.
        live: the model's known shapes: a weight that is empty there too is intended.
    """
    names = [name for name, shape in shapes.items() if 0 in shape and name not in live]
    names += [
        name
        for name, shape in shapes.items()
        if 0 in shape and name in live and 0 not in live[name]
    ]
    if not names:
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"{count_of(len(names), 'weight')} of {len(shapes):,} that were saved "
        f"{'is' if len(names) == 1 else 'are'} empty: {first_of(names)}",
        advice="The weights are partitioned (ZeRO stage 3, FSDP): gather them before they are "
        "saved (stage3_gather_16bit_weights_on_model_save, a full state dict)",
        parameter=names[0],
    )


def cut(shapes: Shapes, live: Shapes) -> Finding | None:
    """Reports weights saved in part, such as a rank's shards.

    Args:
        shapes: what was saved.
        live: shapes of the model's whole weights with these names.
    """
    names = [
        name
        for name, shape in shapes.items()
        if name in live and 0 not in shape
        if len(shape) == len(live[name]) > 0 and shape[1:] == live[name][1:]
        if shape[0] < live[name][0]
    ]
    if len(names) < max(2, len(shapes) / 2):
        return None
    first = names[0]
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"a part of each weight was saved: {first} has "
        f"{count_of(shapes[first][0], 'row')} of {live[first][0]:,}, and so "
        f"{count_of(len(names) - 1, 'other')}",
        advice="The weights are sharded (FSDP): gather them on every rank before one saves them "
        "(full_tensor(), or get_model_state_dict with full_state_dict=True)",
        parameter=first,
    )


def stale(
    saved: Mapping[str, Sequence[float]],
    live: Mapping[str, Sequence[float]],
    begun: Mapping[str, Sequence[float]],
    *,
    is_certain: bool,
) -> Finding | None:
    """Reports trained weights saved with their initial values.

    Args:
        saved: sampled elements of the saved weights.
        live: the same elements in the model.
        begun: the same elements before the first step.
        is_certain: whether it can't be intended.
    """
    unchanged = [
        name
        for name, values in saved.items()
        if name in live and name in begun and list(values) == list(begun[name]) != list(live[name])
    ]
    trained = [name for name in saved if name in begun and begun[name] != live.get(name)]
    if not unchanged or len(unchanged) < len(trained):
        return None
    return Finding(
        Check.SAVED,
        certain=is_certain,
        sentence=f"the saved weights are from before the training: {unchanged[0]} has changed "
        "since, and was saved as it was",
        advice="Save the model that is trained: a copy was made before, or another is saved",
        parameter=unchanged[0],
    )


def by_reference(name: str, taken: int, since: str, *, is_loaded: bool) -> Finding:
    """Reports a state dict that has changed with its model since it was taken.

    Args:
        name: a parameter in it.
        taken: optimizer steps before it was taken.
        since: the user's line that took it.
        is_loaded: whether it is loaded, else saved.
    """
    use = "loaded" if is_loaded else "saved"
    return Finding(
        Check.SAVED,
        certain=is_loaded,
        sentence=f"the state dict that is {use} was taken after step {taken} ({since}) and has "
        f"changed with the model since: its tensors are the model's, e.g. {name}",
        advice="Keep a copy: copy.deepcopy(model.state_dict())",
        parameter=name,
    )


def left_out(names: Sequence[str]) -> Finding | None:
    """Reports parameters of the base model trained beside an adapter and not saved with it."""
    if not names:
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"the saved adapter lacks {count_of(len(names), 'parameter')} trained beside it: "
        f"{first_of(names)}",
        advice="Name their modules in modules_to_save of the adapter's configuration, or save them "
        "in a file too",
        parameter=names[0],
    )


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
