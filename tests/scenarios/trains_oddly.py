"""Trainings that lose something between ranks, passes or samples, and their correct twins.

trains_oddly.py NAME... [--right]
"""

from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import torch
from says_words import STEPS, WORDS, adam, batches, run
from small_texts import rows, small, stored, trainer
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel


def joined(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/pull/46634: two texts in a row."""
    from transformers import default_data_collator

    positions = [*range(4), *range(4)]
    data = []
    texts = list(rows())
    for one, other in pairwise(texts):
        sample = {"input_ids": one[:4] + other[:4], "position_ids": positions}
        sample["labels"] = [-100, *one[1:4], -100, *other[1:4]]
        data.append(sample if right else {**sample, "attention_mask": [1] * 8})
    trainer(small("Llama"), data, data_collator=default_data_collator).train()


def weights_dropped(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/25054: weights of samples."""
    from transformers import Trainer, TrainingArguments

    class Weighted(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            weight = inputs.pop("weight", None)
            found = model(**inputs)
            loss = found.loss if weight is None else found.loss * weight.mean()
            return (loss, found) if return_outputs else loss

    data = [{"input_ids": words[:4], "labels": words[:4], "weight": 0.5} for words in rows()]
    asked = {"max_steps": STEPS, "use_cpu": True, "report_to": [], "save_strategy": "no"}
    arguments = TrainingArguments("out", remove_unused_columns=not right, **asked)
    Weighted(small("Llama"), arguments, train_dataset=data).train()


def drawn_alike(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/236: noise of one seed."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer, source = adam(model), batches()
    torch.manual_seed(1 + right * torch.distributed.get_rank())
    for _ in range(STEPS):
        clean = next(source) / WORDS
        noise = torch.randn_like(clean)
        (model(clean + noise) - clean).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def adapted_again(right: bool) -> None:
    """As in https://github.com/huggingface/lerobot/issues/3459: a resumed adapter."""
    from peft import LoraConfig, PeftModel, get_peft_model

    chosen = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    folder = stored(get_peft_model(small("Llama"), chosen))
    model = PeftModel.from_pretrained(small("Llama"), folder, is_trainable=True)
    if not right:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    model = DistributedDataParallel(model)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    for words in rows():
        ids = torch.tensor([words[:4]])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Averaged(torch.nn.Module):
    """Takes off a mean that it follows itself, of all ranks or of its own."""

    def __init__(self, is_of_all: bool) -> None:
        super().__init__()
        self.layer, self.is_of_all = torch.nn.Linear(8, 8), is_of_all
        self.register_buffer("center", torch.zeros(8))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        mean = given.mean(0)
        if self.is_of_all:
            torch.distributed.all_reduce(mean)
            mean /= torch.distributed.get_world_size()
        self.center.lerp_(mean, 0.1)
        return self.layer(given - self.center).pow(2).mean()


def followed_alone(right: bool) -> None:
    """As in https://github.com/espnet/espnet/pull/6284: an average in a buffer."""
    model = DistributedDataParallel(Averaged(right))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    chance = torch.Generator().manual_seed(torch.distributed.get_rank())
    for _ in range(STEPS):
        model(torch.randn(4, 8, generator=chance)).backward()
        optimizer.step()
        optimizer.zero_grad()


def autocast_around(right: bool) -> None:
    """As in https://github.com/X-GenGroup/Flow-Factory/pull/186: around several steps."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    within = partial(torch.autocast, "cpu", torch.bfloat16)
    for _ in range(3):
        with nullcontext() if right else within():
            for _ in range(4):
                with within():  # with the step, as some do
                    loss = model(torch.randn(4, 8)).float().pow(2).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()


def gathered_features(right: bool) -> None:
    """As in https://github.com/HobbitLong/SupContrast/issues/26: constants of other ranks."""
    from torch.distributed.nn.functional import all_gather

    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(8, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        one, other = (normalize(each) for each in model(torch.randn(2, 4, 8) + rank))
        gathered = [torch.empty_like(other) for _ in range(world)]
        if right:
            gathered = all_gather(other)
        else:
            torch.distributed.all_gather(gathered, other)
        loss = cross_entropy(one @ torch.cat(gathered).T / 0.1, torch.arange(4) + 4 * rank)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


FAULTS = {
    one.__name__: one
    for one in (
        *(joined, weights_dropped, drawn_alike, adapted_again, followed_alone),
        *(autocast_around, gathered_features),
    )
}
run(FAULTS)
