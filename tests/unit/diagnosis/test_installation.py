"""Advice on packages that are absent, or of versions that refuse each other."""

from __future__ import annotations

from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.diagnosis.next_step.step import Step
from safe_launch.evidence.failure_record import FailureRecord, Frame
from support.tables import table

SITE = "/opt/env/lib/python3.11/site-packages"


def step_of(kind: str, message: str, source: str, file: str = f"{SITE}/unsloth/llama.py") -> Step:
    """The next step for an exception of a line."""
    frame = Frame(file, 7, "f", source)
    return next_step(FailureRecord(0, 0.0, kind, message, frames=(frame,), user_files=("t.py",)))


@table(
    ("wanted", "source", "says"),
    [
        ("attn_bias", "mask = xformers.attn_bias.LowerTriangularMask()", 'python -c "import xform'),
        ("initialize", "engine = deepspeed.initialize(model=model)", 'python -c "import deeps'),
        ("nn", "x = bnb.nn.Linear4bit(3, 4)", "a release of bitsandbytes"),
        ("", "out = flash_attn_varlen_func(q, k, v)", 'python -c "import flash_attn"'),
        ("", "out = causal_conv1d_fn(x)", "See why causal_conv1d can't"),
        ("", "out = self.flash_attn_func(q, k, v)", ""),
        ("log", "wandb.run.log(loss)", ""),
        ("step", "self.deepspeed.step(loss)", ""),
        ("map", "rows = datasets.map(f)", ""),
    ],
)
def test_a_package_that_is_none(wanted: str, source: str, says: str) -> None:
    """Its import failed; an attribute of it or of another object that is None is another matter."""
    what = f"has no attribute '{wanted}'" if wanted else "is not callable"
    kind = "AttributeError" if wanted else "TypeError"
    for file in ("t.py", f"{SITE}/unsloth/llama.py"):
        step = step_of(kind, f"'NoneType' object {what}", source, file)
        assert (step.rule == "absent-package") is bool(says)
        assert says in step.do


def test_a_notebook_is_restarted_after_an_installation() -> None:
    """A kernel keeps what it has imported; a script's next start doesn't."""
    message = "This needs accelerate: please run `pip install accelerate`"
    other = "Please pass a value for `steps`"
    cell = "<ipython-input-33-89b3>"
    for said, file, is_again in (
        (message, cell, True),
        (message, "Cell In[3]", True),
        (message, "t.py", False),
        (other, cell, False),
    ):
        step = step_of("ImportError", said, "raise ImportError(", file)
        assert step.rule == "instruction"
        assert ("restart the notebook" in step.do) is is_again
