"""Facts from a worker's description of the model."""

from __future__ import annotations

import peft
import pytest
import transformers
from safe_launch.core.model import shape_of
from safe_launch.core.settings import Fact
from safe_launch.core.workload import Origin, Workload
from safe_launch.diagnosis.observed import with_model


@pytest.mark.filterwarnings("ignore:Model has:UserWarning", "ignore:.*checkpointing:FutureWarning")
@pytest.mark.parametrize(
    ("tied", "saved", "expected"),
    [(True, ["lm_head"], True), (False, ["lm_head"], None), (True, None, None)],
)
def test_ends_of_tied_embeddings(
    tied: bool, saved: list[str] | None, expected: bool | None
) -> None:
    """Peft has copied one end of an embedding that the configuration ties."""
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    adapters = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=saved)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)
    workload = with_model(Workload(), shape_of(model), "the model", Origin.OBSERVED)
    assert workload.value(Fact.ADAPTER) == "lora"
    assert workload.value(Fact.TIED_SAVED) is expected
