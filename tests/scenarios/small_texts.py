"""Texts between two ends, and what trains on them: small models, and a Trainer."""

import tempfile

import torch
from says_words import STEPS, WORDS

PAD, BEGIN, END = 0, 1, 2


def rows(count: int = 64):
    """Texts between their two ends, of different lengths."""
    chance = torch.Generator().manual_seed(1)
    for number in range(count):
        length = 3 + number % 4
        words = torch.randint(END + 1, WORDS, (length,), generator=chance)
        yield [BEGIN, *words.tolist(), END]


def small(kind: str) -> torch.nn.Module:
    """A small model of transformers'."""
    import transformers

    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    sizes = {
        "Llama": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, **heads},
        "T5": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
    }[kind]
    names = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
    if kind == "T5":
        names["decoder_start_token_id"] = PAD
    config = getattr(transformers, f"{kind}Config")(vocab_size=WORDS, **names, **sizes)
    suffix = "ForConditionalGeneration" if kind == "T5" else "ForCausalLM"
    return getattr(transformers, f"{kind}{suffix}")(config)


def stored(model: torch.nn.Module, **more: object) -> str:
    """The folder into which rank 0 saves a model."""
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    model.save_pretrained(folder[0], **more)
    torch.distributed.barrier()
    return folder[0]


def trainer(model: torch.nn.Module, data: list[dict[str, object]], **more: object):
    """Transformers' Trainer for these samples."""
    from transformers import Trainer, TrainingArguments

    asked = {"max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    asked |= {"save_strategy": "no", "per_device_train_batch_size": 4, **more.pop("asked", {})}
    return Trainer(model, TrainingArguments("out", **asked), train_dataset=data, **more)
