"""Advice on an attention that xformers has no operator for."""

from __future__ import annotations

from safe_launch.diagnosis.next_step.attention import no_operator
from safe_launch.diagnosis.next_step.step import case_of
from safe_launch.evidence.failure_record import FailureRecord
from support.tables import table

HEAD = (
    "No operator found for `memory_efficient_attention_forward` with inputs:\n query : shape=(1, 2)"
)
WHY = "\n`{}` is not supported because:\n    {}"
UNBUILT = WHY.format("cutlassF-pt", "operator wasn't built - see `python -m xformers.info`")
FLOAT = "dtype=torch.float32 (supported: {torch.float16, torch.bfloat16})"
OLD = "requires device with capability > (8, 0) but your GPU has capability (7, 5) (too old)"
NEW = "requires device with capability <= (9, 0) but your GPU has capability (12, 0) (too new)"
BF16 = "bf16 is only supported on A100+ GPUs"


@table(
    ("reasons", "says"),
    [
        (WHY.format("fa2F@v2.5.7-pt", FLOAT) + UNBUILT, "fp16 or bf16 (autocast"),
        (WHY.format("fa2F", f"{OLD}\n {BF16}") + WHY.format("cutlassF", BF16), "Train in fp16"),
        (WHY.format("fa2F@v2.5.7", OLD), "torch's attention (`sdpa`)"),
        (WHY.format("fa2F@v2.5.7", NEW), "the newest xformers, which has this GPU (12, 0)"),
        (WHY.format("fa2F", f"device=cpu (supported: {{'cuda'}})\n {FLOAT}"), "to the GPU"),
        (WHY.format("ckF", "attn_bias.stride(-2) % 8 != 0"), "Change the mask"),
        (UNBUILT, None),
        (WHY.format("ckF", "a reason of tomorrow"), None),
    ],
)
def test_the_operator_with_the_fewest_reasons(reasons: str, says: str | None) -> None:
    """Operators that aren't built are an installation's matter, if none is."""
    record = FailureRecord(0, 0.0, "NotImplementedError", HEAD + reasons)
    step = no_operator(case_of(record))
    assert (step is None) is (says is None)
    assert step is None or says is None or says in step.do
