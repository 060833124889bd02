"""Trainings with mistakes that are often reported, and their correct twins.

trains_usually.py NAME... [--right]
"""

import os
import tempfile
from argparse import Namespace

import torch
from says_words import STEPS, Net, adam, batches, run, steps, texts
from small_texts import rows, small, stored, trainer
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset


def padded_metric(right: bool) -> None:
    """As in https://github.com/roboflow/rf-detr/issues/1507: 41 samples on two ranks."""
    model = DistributedDataParallel(Net())
    steps(model, adam(model), batches())
    data = Subset(texts(), range(41))
    sampler = DistributedSampler(data, shuffle=False)
    model.eval()
    with torch.no_grad():
        losses = [model(words, words) for (words,) in DataLoader(data, 1, sampler=sampler)]
    if right:
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        losses = losses[: len(range(rank, len(data), world))]
    found = torch.tensor([sum(losses), len(losses)])
    torch.distributed.all_reduce(found)
    print(found[0] / found[1])


def begun_again(right: bool) -> None:
    """As in https://github.com/ultralytics/yolov5/issues/292: weights without the optimizer."""
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    for is_resumed in (False, True):
        model = DistributedDataParallel(Net())
        optimizer = adam(model)
        if is_resumed:
            kept = torch.load(path)
            model.module.load_state_dict(kept["model"])
            if right:
                optimizer.load_state_dict(kept["optimizer"])
        steps(model, optimizer, batches())
        kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(kept, path)


class Tuned(torch.nn.Module):
    """A new head on a frozen body, whose statistics may be kept."""

    def __init__(self, is_kept: bool) -> None:
        super().__init__()
        self.is_kept = is_kept
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
        self.body.requires_grad_(False)
        self.head = torch.nn.Linear(8, 1)

    def train(self, mode: bool = True) -> "Tuned":
        super().train(mode)
        if self.is_kept:
            self.body.eval()
        return self

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(given)).pow(2).mean()


def followed_frozen(right: bool) -> None:
    """As in https://github.com/poppinace/indexnet_matting/issues/35: a frozen batch norm."""
    model = DistributedDataParallel(Tuned(right)).train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
    for words in (next(source) for source in [batches()] * STEPS):
        model(words.float()).backward()
        optimizer.step()
        optimizer.zero_grad()


def loaded_halved(right: bool) -> None:
    """As in https://github.com/tianweiy/CausVid/issues/19: weights of the checkpoint's type."""
    from transformers import AutoModelForCausalLM

    asked = {"dtype": torch.float32} if right else {}
    model = AutoModelForCausalLM.from_pretrained(stored(small("Llama").bfloat16()), **asked)
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(model, data, asked={"bf16": True}).train()


def never_accumulated(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/pull/308: steps that prepare doesn't get."""
    from accelerate import Accelerator

    args = Namespace(gradient_accumulation_steps=4)
    given = vars(args) if right else {}
    accelerator = Accelerator(cpu=True, **given)
    model = Net()
    model, optimizer, loader = accelerator.prepare(model, adam(model), DataLoader(texts(), 4))
    for (words,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(words, labels=words))
            optimizer.step()
            optimizer.zero_grad()


def views_joined(right: bool) -> None:
    """As in https://github.com/htdt/hyp_metric/issues/6: a rank's own features put back."""
    from torch.distributed.nn.functional import all_gather

    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(8, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        views = normalize(model(torch.randn(4, 2, 8) + rank), dim=-1)
        if right:
            views = torch.cat(all_gather(views))
        else:
            with torch.no_grad():
                gathered = [torch.empty_like(views) for _ in range(world)]
                torch.distributed.all_gather(gathered, views)
            gathered[rank] = views
            views = torch.cat(gathered)
        loss = cross_entropy(views[:, 0] @ views[:, 1].T / 0.1, torch.arange(4 * world))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def loaded_itself(right: bool) -> None:
    """As in https://stackoverflow.com/questions/61854165: no name of a checkpoint fits."""
    model = DistributedDataParallel(Net())
    steps(model, adam(model), batches())
    taken = model.module if right else model
    kept = {name: value.clone() for name, value in taken.state_dict().items()}
    other = Net()
    states = other.state_dict()
    states.update({name: value for name, value in kept.items() if name in states})
    other.load_state_dict(states)


def adapted_anew(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/793: a trained adapter's configuration."""
    from peft import LoraConfig, PeftModel, get_peft_model

    adapted = get_peft_model(small("Llama"), LoraConfig(target_modules=["q_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    folder = stored(adapted)
    torch.manual_seed(0)
    base = small("Llama")
    if right:
        model = PeftModel.from_pretrained(base, folder, is_trainable=True)
    else:
        config = LoraConfig.from_pretrained(folder)
        config.inference_mode = False
        model = get_peft_model(base, config)
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(model, data).train()


def moved_in_part(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/2624: bfloat16 at a small rate."""
    torch.manual_seed(0)
    model = Net() if right else Net().to(torch.bfloat16)
    model = DistributedDataParallel(model)
    steps(model, adam(model, rate=3e-4), batches())


def average_left(right: bool) -> None:
    """An average of the weights is evaluated, and stays."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    average = [weight.detach().clone() for weight in model.parameters()]
    for number in range(1, STEPS + 1):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, weight in zip(average, model.parameters(), strict=True):
                mean.lerp_(weight, 0.1)
        if number % 3 == 0:
            kept = [weight.detach().clone() for weight in model.parameters()]
            for mean, weight in zip(average, model.parameters(), strict=True):
                weight.data.copy_(mean)
            model.eval()
            with torch.no_grad():
                model(words, labels=words)
            model.train()
            if right:
                for trained, weight in zip(kept, model.parameters(), strict=True):
                    weight.data.copy_(trained)


def moved_by_epochs(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/2926: a schedule in epochs."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=not right)
    model = Net()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    prepared = accelerator.prepare(model, optimizer, DataLoader(texts(), 16), schedule)
    model, optimizer, loader, schedule = prepared
    for _ in range(4):
        for (words,) in loader:
            accelerator.backward(model(words, labels=words))
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()


def mean_function(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/37766: a loss function's mean."""

    def loss_of(outputs: object, labels: torch.Tensor, num_items_in_batch: object = None):
        logits = outputs.logits[:, :-1].flatten(0, 1)
        total = cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum")
        count = num_items_in_batch if right and num_items_in_batch is not None else labels.numel()
        return total / count

    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    asked = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    trainer(small("Llama"), data, asked=asked, compute_loss_func=loss_of).train()


FAULTS = {
    one.__name__: one
    for one in (
        *(padded_metric, begun_again, followed_frozen, loaded_halved, never_accumulated),
        *(views_joined, loaded_itself, adapted_anew, moved_in_part, average_left),
        *(moved_by_epochs, mean_function),
    )
}
run(FAULTS)
