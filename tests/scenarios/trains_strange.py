"""Trainings on texts that aren't as their authors think, and their correct twins.

trains_strange.py NAME... [--right]
"""

import torch
from says_words import STEPS, WORDS, run
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

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


def trainer(model: torch.nn.Module, data: list[dict[str, object]], **more: object):
    """Transformers' Trainer for these samples."""
    from transformers import Trainer, TrainingArguments

    asked = {"max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    asked |= {"save_strategy": "no", "per_device_train_batch_size": 4, **more.pop("asked", {})}
    return Trainer(model, TrainingArguments("out", **asked), train_dataset=data, **more)


def filled(words: list[int], length: int, fill: int = PAD) -> list[int]:
    """A text filled up to a length."""
    return words + [fill] * (length - len(words))


def padding_trained(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/32832: padded beforehand."""
    data = []
    for words in rows():
        sample = {"input_ids": filled(words, 8), "attention_mask": filled([1] * len(words), 8)}
        sample["labels"] = filled(words, 8, -100 if right else PAD)
        data.append(sample)
    model = DistributedDataParallel(small("Llama"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        some = data[4 * step : 4 * step + 4]
        batch = {name: torch.tensor([each[name] for each in some]) for name in some[0]}
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def targets_padded(right: bool) -> None:
    """As in https://github.com/allenai/allennlp/issues/5342, with a Trainer."""
    data = []
    for words in rows():
        sample = {"input_ids": filled(words, 8), "attention_mask": filled([1] * len(words), 8)}
        sample["labels"] = filled(words[::-1], 10, -100 if right else PAD)
        data.append(sample)
    trainer(small("T5"), data).train()


def begun_twice(right: bool) -> None:
    """As in https://github.com/OpenRLHF/OpenRLHF/issues/393: a template's texts."""
    from transformers import default_data_collator

    begin = [] if right else [BEGIN]
    data = [{"input_ids": begin + words[:5], "labels": begin + words[:5]} for words in rows()]
    trainer(small("Llama"), data, data_collator=default_data_collator).train()


def worst_kept(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/pull/31142: by a perplexity."""
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    asked = {"eval_strategy": "steps", "eval_steps": 6, "save_strategy": "steps", "save_steps": 6}
    asked |= {"metric_for_best_model": "perplexity", "load_best_model_at_end": True}
    asked |= {"greater_is_better": False} if right else {}

    def measured(found) -> dict[str, float]:
        logits, labels = (torch.tensor(each) for each in (found.predictions, found.label_ids))
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"perplexity": float(loss.exp())}

    held = {"eval_dataset": data[:8], "compute_metrics": measured}
    trainer(small("Llama"), data, asked=asked, **held).train()


FAULTS = {one.__name__: one for one in (padding_trained, targets_padded, begun_twice, worst_kept)}
run(FAULTS)
