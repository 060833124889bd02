"""Names removed or added, by version, in packages whose wheels aren't read."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """Removed names."""

    package: str
    since: str
    names: str
    source: str


WHEELS = "its wheel on PyPI, and that of the release before"
REMOVED = (
    Removed("transformers", "5.24", r"modeling_attn_mask_utils", WHEELS),
    Removed("transformers", "5.20", r"data\.(datasets|metrics|processors)(\.\w+)?", WHEELS),
    Removed("transformers", "5.9", r"utils\.metrics", WHEELS),
    Removed("transformers", "5.4", r"image_processing_utils_fast", WHEELS),
    Removed(
        "transformers",
        "5.3",
        r"pipelines\.(question_answering|image_to_image|visual_question_answering)",
        WHEELS,
    ),
    Removed(
        "transformers",
        "5",
        r"tokenization_utils(_fast)?|utils\.(fx|bitsandbytes|model_parallel_utils)|onnx(\.\w+)?"
        r"|sagemaker(\.\w+)?|keras_callbacks|generation\.(beam_search|beam_constraints)|tf_utils"
        r"|(modeling|generation)\.?_?(tf|flax)_\w+|(activations|optimization|training_args)_tf"
        r"|commands(\.\w+)?|pipelines\.(image_to_text|text2text_generation)",
        WHEELS,
    ),
    Removed("huggingface_hub", "1.0", r"HfFolder|Repository", WHEELS),
    Removed("huggingface_hub", "0.26", r"cached_download", WHEELS),
    Removed("datasets", "3.0", r"load_metric|inspect_metric|list_metrics|metric|Metric", WHEELS),
    Removed(
        "torch",
        "2.4",
        r"log",
        "https://github.com/deepspeedai/DeepSpeed/issues/5337",
    ),
    Removed("torch", "2.0", r"_six", "https://github.com/pytorch/pytorch/pull/94709"),
)


@dataclass(frozen=True, slots=True)
class Added:
    """Added names."""

    package: str
    before: str
    since: str
    names: tuple[str, ...]
    source: str


ADDED = (
    Added(
        "torch",
        "2.5",
        "2.6",
        ("FSDPModule", "UnshardHandle"),
        "https://github.com/verl-project/verl/issues/4996",
    ),
)


def gone_since(package: str, name: str) -> str | None:
    """The first version of a package without a removed name, if known."""
    return next(
        (
            row.since
            for row in REMOVED
            if row.package == package and re.fullmatch(row.names, name) is not None
        ),
        None,
    )
