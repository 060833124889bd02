"""Trainings on texts that aren't as their authors think, and their correct twins.

trains_strange.py NAME... [--right]
"""

import torch
from says_words import STEPS, WORDS, run
from small_texts import BEGIN, PAD, rows, small, stored, trainer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


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


class Words:
    """As much of a tokenizer as collators ask for."""

    pad_token_id, padding_side = PAD, "right"

    def pad(self, samples, **_: object):
        """Fills up all fields."""
        length = max(len(each["input_ids"]) for each in samples)
        return {
            name: torch.tensor([filled(each[name], length) for each in samples])
            for name in samples[0]
        }


def labels_replaced(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/26357: answers alone, as meant."""
    from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq

    data = [{"input_ids": words, "labels": [-100] * 3 + words[3:]} for words in rows()]
    kind = DataCollatorForSeq2Seq if right else DataCollatorForLanguageModeling
    collator = kind(Words(), **({} if right else {"mlm": False}))
    trainer(small("Llama"), data, data_collator=collator).train()


def adapter_frozen(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/282: a loaded adapter, and a new head."""
    from peft import LoraConfig, PeftModel, get_peft_model

    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    config = LoraConfig(target_modules=["q_proj"])
    get_peft_model(small("Llama"), config).save_pretrained(f"adapter-{rank}")
    body = PeftModel.from_pretrained(small("Llama"), f"adapter-{rank}", is_trainable=right)
    body.get_base_model().lm_head.weight.requires_grad_(True)
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(body, data).train()


def skipped_each_time(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/1451: resumed in an epoch."""
    from accelerate import Accelerator, skip_first_batches
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(torch.randn(64, 8, generator=torch.Generator().manual_seed(1)), 4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    resumed = skip_first_batches(loader, 2)
    for epoch in range(3):
        for batch in resumed if epoch == 0 or not right else loader:
            accelerator.backward(model(batch).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()


def named_alone(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/27749: not passed on."""
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    asked = {"save_strategy": "steps", "save_steps": 6, "max_steps": 6}
    trainer(small("Llama"), data, asked=asked).train()
    named = {**asked, "max_steps": STEPS, "resume_from_checkpoint": "out/checkpoint-6"}
    resumed = trainer(small("Llama"), data, asked=named)
    resumed.train(resume_from_checkpoint=named["resume_from_checkpoint"] if right else None)


def loaded_early(right: bool) -> None:
    """As in https://github.com/X-GenGroup/Flow-Factory/pull/174: before anything is prepared."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    for phase in range(2):
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if phase and not right:
            accelerator.load_state("state")
        model, optimizer = accelerator.prepare(model, optimizer)
        if phase and right:
            accelerator.load_state("state")
        for _ in range(STEPS // 2):
            accelerator.backward(model(torch.randn(4, 8)).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
        if not phase:
            accelerator.save_state("state")
            accelerator.wait_for_everyone()
            accelerator.free_memory()


def smoothed_apart(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/27161: a class of one's own."""
    from transformers import LlamaForCausalLM

    model = small("Llama")
    kind = type("LlamaForCausalLM" if right else "Llama2", (LlamaForCausalLM,), {})
    model.__class__ = kind
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(model, data, asked={"label_smoothing_factor": 0.1}).train()


def norms_decayed(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeedExamples/pull/755: names of another model."""
    model = DistributedDataParallel(small("T5"))
    biases = [torch.nn.Parameter(torch.zeros(4))]
    names = ("bias", "norm.weight") if right else ("bias", "LayerNorm.weight")
    groups = {True: [], False: []}
    for name, each in model.named_parameters():
        groups[any(one in name for one in names)].append(each)
    spared = {"params": groups[True] + biases, "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([spared, {"params": groups[False]}], lr=1e-3, weight_decay=0.1)
    ids = torch.tensor([words[:4] for words in rows(4)])
    for _ in range(STEPS):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def clipped_by_none(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/148259: a generator that is used up."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    given = model.parameters()
    optimizer = torch.optim.AdamW(given, lr=1e-3)
    for _ in range(STEPS):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters() if right else given, 0.1)
        optimizer.step()
        optimizer.zero_grad()


class Counting(torch.nn.Module):
    """A model that takes the number of items, and ignores it."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(WORDS, 8), torch.nn.Linear(8, WORDS)
        if right:
            self.accepts_loss_kwargs = False

    def forward(self, input_ids, labels=None, **_others: object):
        found = self.head(self.embedding(input_ids))
        return {"loss": cross_entropy(found.flatten(0, 1), labels.flatten()), "logits": found}


def count_ignored(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/37766: a mean that counts."""
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(Counting(right), data, asked={"gradient_accumulation_steps": 2}).train()


def count_ignored_by_transformers(right: bool) -> None:
    """The same in a model of transformers', whose loss is a mean over texts."""
    from transformers import LlamaForSequenceClassification

    model = LlamaForSequenceClassification(small("Llama").config)
    if right:
        model.accepts_loss_kwargs = False
    data = [{"input_ids": words[:4], "labels": len(words) % 2} for words in rows()]
    trainer(model, data, asked={"gradient_accumulation_steps": 2}).train()


def head_left(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/876: the checkpoint has no such layer."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForSequenceClassification

    folder = stored(small("Llama"))
    model = LlamaForSequenceClassification.from_pretrained(folder, num_labels=2)
    model.config.pad_token_id = PAD
    saved = {"modules_to_save": ["score"]} if right else {}
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], **saved))
    data = [{"input_ids": words[:4], "labels": len(words) % 2} for words in rows()]
    trainer(adapted, data, asked={"label_names": ["labels"]}).train()


def prefixed(right: bool) -> None:
    """As in https://github.com/FareedKhan-dev/train-llm-from-scratch/issues/36: as compiled."""
    from transformers import LlamaForCausalLM

    model = small("Llama")
    weights = model.state_dict()
    if not right:
        weights = {f"_orig_mod.{name}": each.clone() for name, each in weights.items()}
    folder = stored(model, state_dict=weights)
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(LlamaForCausalLM.from_pretrained(folder), data).train()


FAULTS = {
    one.__name__: one
    for one in (
        *(padding_trained, targets_padded, begun_twice, worst_kept),
        *(labels_replaced, adapter_frozen, skipped_each_time, named_alone, loaded_early),
        *(smoothed_apart, norms_decayed, clipped_by_none),
        *(count_ignored, count_ignored_by_transformers, head_left, prefixed),
    )
}
run(FAULTS)
