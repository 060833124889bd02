"""Trainings whose schedules, labels, types or groups don't fit, as people have reported them.

trains_askew.py NAME... [--right]
"""

import torch
from says_words import ACCUMULATION, STEPS, WORDS, Net, adam, batches, run, steps, texts
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

END = WORDS - 1
"""The token that ends each text, and fills up the shorter ones."""


def llama(**more: object) -> torch.nn.Module:
    """A language model of transformers'."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": WORDS}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, eos_token_id=END, **more))


def accelerated(schedule_of, accumulation: int = 1, *, clears_first: bool = False) -> None:
    """Trains in accelerate's way, with a schedule that is made of an optimizer."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    net = Net()
    optimizer = adam(net)
    given = net, optimizer, DataLoader(texts(), 4), schedule_of(optimizer)
    model, optimizer, loader, schedule = accelerator.prepare(*given)
    for _ in range(accumulation):
        for (words,) in loader:
            with accelerator.accumulate(model):
                if clears_first:
                    optimizer.zero_grad()
                accelerator.backward(model(words, labels=words))
                optimizer.step()
                schedule.step()
                if not clears_first:
                    optimizer.zero_grad()


def linear(optimizer: torch.optim.Optimizer, total: int) -> lr_scheduler.LRScheduler:
    """Transformers' schedule that falls to 0."""
    from transformers import get_linear_schedule_with_warmup

    return get_linear_schedule_with_warmup(optimizer, 0, total)


def stretched(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/issues/4387, with accelerate."""
    total = STEPS * 2 * (1 if right else ACCUMULATION)
    accelerated(lambda optimizer: linear(optimizer, total), ACCUMULATION)


def by_batches(right: bool) -> None:
    """As in https://github.com/allenai/allennlp/issues/4089, in a plain loop."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    schedule = linear(optimizer, STEPS * (1 if right else ACCUMULATION))
    for _ in range(STEPS):
        for number in range(ACCUMULATION):
            words = next(source)
            model.require_backward_grad_sync = number == ACCUMULATION - 1
            (model(words, labels=words) / ACCUMULATION).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def for_the_trainer(right: bool) -> None:
    """As in https://github.com/allenai/allennlp/issues/4089, given to transformers' Trainer."""
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": words, "labels": words} for (words,) in texts()]
    asked = {"max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    asked |= {"gradient_accumulation_steps": ACCUMULATION, "save_strategy": "no"}
    model = llama()
    optimizer = adam(model)
    schedule = linear(optimizer, STEPS if right else STEPS * ACCUMULATION * 2)
    arguments = TrainingArguments("out", **asked)
    Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, schedule)).train()


def rising_again(right: bool) -> None:
    """As in https://github.com/lucidrains/imagen-pytorch/issues/71."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, STEPS if right else 4)
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def over_by_rank(right: bool) -> None:
    """As in https://github.com/Lightricks/LTX-Video-Trainer/issues/67, with accelerate."""
    total = STEPS * (2 if right else 1)
    accelerated(lambda optimizer: lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=total))


def cleared_early(right: bool) -> None:
    """As in https://github.com/bytetriper/RAE/issues/67."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        for _ in range(ACCUMULATION):
            if not right:
                optimizer.zero_grad()
            words = next(source)
            (model(words, labels=words) / ACCUMULATION).backward()
        optimizer.step()
        optimizer.zero_grad()


def cleared_in_accelerate(right: bool) -> None:
    """As in https://github.com/starVLA/starVLA/issues/395, with accelerate."""
    total = STEPS * 2
    clears = not right
    accelerated(lambda optimizer: linear(optimizer, total), ACCUMULATION, clears_first=clears)


def trained_on(labels_of) -> None:
    """Trains a language model on texts that end, and on labels that are made of them."""
    model = DistributedDataParallel(llama())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source).clone()
        words[:, -1] = END
        words[::2, -3:] = END  # a shorter text, filled up
        mask = torch.ones_like(words)
        mask[::2, -2:] = 0
        words[words == END] = END
        labels = labels_of(words, mask)
        model(input_ids=words, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def shifted(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/32944."""

    def labels_of(words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        labels = words.masked_fill(mask == 0, -100)
        return labels if right else torch.cat((labels[:, 1:], labels[:, :1] * 0 - 100), 1)

    trained_on(labels_of)


def never_ending(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/23530."""
    trained_on(
        lambda words, mask: words.masked_fill((mask == 0) if right else (words == END), -100)
    )


def softmax_twice(right: bool) -> None:
    """As in https://github.com/jindongwang/Deep-learning-activity-recognition/issues/10."""

    class Twice(Net):
        def forward(self, words, labels):
            found = self.head(torch.relu(self.hidden(self.embedding(words))))
            found = found if right else torch.softmax(found, -1)
            return cross_entropy(found.flatten(0, 1), labels.flatten())

    model = DistributedDataParallel(Twice())
    steps(model, adam(model), batches())


def without_decay(right: bool) -> None:
    """As in https://github.com/namisan/mt-dnn/pull/37."""
    model = DistributedDataParallel(Net())
    names = dict(model.named_parameters())
    spared = [name for name in names if (name.endswith("bias") if right else name in ["bias"])]
    groups = [
        {"params": [each for name, each in names.items() if name not in spared]},
        {"params": [names[name] for name in spared], "weight_decay": 0.0},
    ]
    steps(model, torch.optim.AdamW(groups, 1e-2), batches())


def new_words(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/334, with PEFT."""
    from peft import LoraConfig, get_peft_model

    base = llama()
    base.resize_token_embeddings(WORDS + 4)
    kept = ["embed_tokens", "lm_head"] if right else None
    net = get_peft_model(base, LoraConfig(target_modules=["q_proj"], modules_to_save=kept))
    model, source = DistributedDataParallel(net), batches()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(STEPS):
        words = next(source)
        words = torch.where(words == 3, WORDS + 1, words)
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def all_in_bfloat16(right: bool) -> None:
    """As in https://github.com/areal-project/AReaL/issues/1292, under autocast."""
    net = Net() if right else Net().to(torch.bfloat16)
    model = DistributedDataParallel(net)
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(words, labels=words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def sharded_grain(right: bool) -> None:
    """As in https://github.com/meta-pytorch/torchtune/issues/2254, with FSDP2."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    net = Net() if right else Net().to(torch.bfloat16)
    half = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16)} if right else {}
    fully_shard(net, mesh=torch.distributed.init_device_mesh("cpu", (2,)), **half)
    steps(net, adam(net, 1e-6), batches())


FAULTS = {
    one.__name__: one
    for one in (
        *(stretched, by_batches, for_the_trainer, rising_again, over_by_rank, cleared_early),
        *(cleared_in_accelerate, shifted, never_ending, softmax_twice, without_decay, new_words),
        *(all_in_bfloat16, sharded_grain),
    )
}
run(FAULTS)
