"""Trainings with mistakes that plain loops and losses of a script's make, and their correct twins.

trains_commonly.py NAME... [--right]
"""

import os
import tempfile
from argparse import Namespace
from itertools import islice

import torch
from says_words import STEPS, WORDS, Net, adam, batches, run, steps, texts
from small_texts import PAD, rows, small, trainer
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def fit(model, optimizer, loss_of, source) -> None:
    """A plain loop whose loss is the script's."""
    for batch in islice(source, STEPS):
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def padded(count: int = 64) -> torch.Tensor:
    """Texts of different lengths, with padding behind."""
    length = max(map(len, rows(count)))
    return torch.tensor([row + [PAD] * (length - len(row)) for row in rows(count)])


def padded_batches():
    data = TensorDataset(padded())
    while True:
        for (words,) in DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False)):
            yield words


def padding_masked(right: bool) -> None:
    """As in https://github.com/state-spaces/mamba/issues/24: a Trainer's loss of all tokens."""
    from transformers import Trainer

    class Counting(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels") if right else inputs["input_ids"]
            logits = model(inputs["input_ids"], inputs["attention_mask"]).logits[:, :-1]
            count = (labels[:, 1:] != -100).sum() * self.args.world_size
            loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
            if right:
                return loss.sum() / (num_items_in_batch or count)
            return cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())

    data = [
        {
            "input_ids": row,
            "attention_mask": (row != PAD).long(),
            "labels": torch.where(row == PAD, -100, row),
        }
        for row in padded()
    ]
    trained = trainer(small("Llama"), data, asked={"remove_unused_columns": False})
    own = Counting(trained.model, trained.args, train_dataset=data)
    own.model_accepts_loss_kwargs = right
    own.train()


class Reader(torch.nn.Module):
    """Predicts the next word of texts with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, 16, padding_idx=PAD)
        self.cell = torch.nn.GRU(16, 16, batch_first=True)
        self.head = torch.nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.embedding(words))[0])


def padding_counted(right: bool) -> None:
    """As in https://discuss.pytorch.org/t/how-to-mask-the-loss/14498: no ignore_index."""
    model = DistributedDataParallel(Reader())
    criterion = torch.nn.CrossEntropyLoss(**({"ignore_index": PAD} if right else {}))

    def loss_of(model, words):
        return criterion(model(words[:, :-1]).transpose(1, 2), words[:, 1:])

    fit(model, adam(model), loss_of, padded_batches())


def unshifted(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/17345: logits of the same place."""
    model = DistributedDataParallel(small("Llama"))

    def loss_of(model, words):
        logits = model(input_ids=words).logits
        if right:
            logits, words = logits[:, :-1], words[:, 1:]
        return cross_entropy(logits.flatten(0, 1), words.flatten())

    fit(model, adam(model), loss_of, batches())


def shifted_again(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/32944, with a loss of one's own."""
    model = DistributedDataParallel(small("Llama"))

    def loss_of(model, words):
        words, labels = words[:, :-1], words[:, 1:]
        logits = model(input_ids=words).logits
        if not right:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    fit(model, adam(model), loss_of, batches())


def times_ranks(right: bool) -> None:
    """As in https://github.com/neuralmagic/sparseml/pull/135: DDP takes the mean."""
    model = DistributedDataParallel(Net())
    world_size = torch.distributed.get_world_size()

    def loss_of(model, words):
        loss = model(words, words)
        return loss if right else loss * world_size

    optimizer = adam(model)
    for words in islice(batches(), STEPS):
        loss = model(words, words)
        if not right:
            loss = loss * world_size
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def always_equal(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/1843: the reference is the model itself."""
    from copy import deepcopy

    model = DistributedDataParallel(Net())
    reference = deepcopy(model.module) if right else model.module

    def loss_of(model, words):
        with torch.no_grad():
            known = reference(words, words)
        return -torch.nn.functional.logsigmoid(known - model(words, words))

    fit(model, adam(model), loss_of, batches())


class Regression(torch.nn.Module):
    """A number for each sample; its layers may be in a list."""

    def __init__(self, is_registered: bool = True) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        layers = [torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)]
        self.layers = torch.nn.ModuleList(layers) if is_registered else layers
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = torch.relu(self.first(values))
        for layer in self.layers:
            values = torch.relu(layer(values))
        return self.head(self.drop(values))


def numbers(count: int = 96) -> TensorDataset:
    """Samples and their targets, the same on every rank."""
    chance = torch.Generator().manual_seed(2)
    values = torch.randn(count, 8, generator=chance)
    return TensorDataset(values, values.sum(1))


def numbered_batches(sampler=None):
    data = numbers()
    sampler = sampler or DistributedSampler(data)
    while True:
        yield from DataLoader(data, 4, sampler=sampler)


def in_a_list(right: bool) -> None:
    """As in https://discuss.pytorch.org/t/list-of-nn-module-in-a-nn-module/219."""
    model = DistributedDataParallel(Regression(right))

    def loss_of(model, batch):
        return mse_loss(model(batch[0]).squeeze(-1), batch[1])

    fit(model, adam(model), loss_of, numbered_batches())


def broadcast(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/10148: (4, 1) and (4,) make (4, 4)."""
    model = DistributedDataParallel(Regression())

    def loss_of(model, batch):
        made = model(batch[0])
        return (((made.squeeze(-1) if right else made) - batch[1]) ** 2).mean()

    fit(model, adam(model), loss_of, numbered_batches())


def evaluated_training(right: bool) -> None:
    """As in https://discuss.pytorch.org/t/model-eval-gives-incorrect-loss/7561: no eval()."""
    model = DistributedDataParallel(Regression())
    optimizer = adam(model)

    def loss_of(model, batch):
        return mse_loss(model(batch[0]).squeeze(-1), batch[1])

    for _ in range(2):
        fit(model, optimizer, loss_of, numbered_batches())
        model.train(not right)
        with torch.no_grad():
            for batch in DataLoader(numbers(16), 4):
                loss_of(model, batch)
        model.train()


def scaler_left_out(right: bool) -> None:
    """As in https://discuss.pytorch.org/t/optimizer-step-vs-scaler-step/171228."""
    model = DistributedDataParallel(Net())
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for words in islice(batches(), STEPS):
        scaler.scale(model(words, words)).backward()
        if right:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()


def ordered_apart(right: bool) -> None:
    """As in https://github.com/jia-zhuang/pytorch-multi-gpu-training/issues/5: all samples."""
    torch.manual_seed(torch.distributed.get_rank())
    model = DistributedDataParallel(Net())
    data = texts()
    sampler = DistributedSampler(data) if right else None
    loader = DataLoader(data, 4, sampler=sampler, shuffle=sampler is None)
    steps(model, adam(model), (words for (words,) in loader))


def drawn_again(right: bool) -> None:
    """As in https://discuss.pytorch.org/t/random-seed-initialization/7854: a seed in the loop."""
    rank = torch.distributed.get_rank()
    model = DistributedDataParallel(Regression())
    torch.manual_seed(rank)

    def loss_of(model, batch):
        if not right:
            torch.manual_seed(rank)
        noise = torch.randn(4, 8)
        return mse_loss(model(batch[0] + 0.1 * noise).squeeze(-1), batch[1])

    fit(model, adam(model), loss_of, numbered_batches())


def gathered_in_vain(right: bool) -> None:
    """As in https://github.com/galilai-group/stable-pretraining/pull/415: a result is dropped."""
    from torch.distributed.nn.functional import all_gather

    model = DistributedDataParallel(Regression())

    def loss_of(model, batch):
        made = model(batch[0])
        if right:
            made = torch.cat(all_gather(made))
        else:
            all_gather(made)
        return (made.var() - 1) ** 2

    fit(model, adam(model), loss_of, numbered_batches())


def merged_in_vain(right: bool) -> None:
    """As in https://github.com/huggingface/peft/pull/2871: the merged model is dropped."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(small("Llama"), LoraConfig(target_modules=["q_proj"]))
    if right:
        model = model.merge_and_unload()
    else:
        model.merge_and_unload()


def summed_labels(right: bool) -> None:
    """As in https://github.com/radixark/miles/pull/3231: nothing divides the tokens' sum."""
    model = DistributedDataParallel(Reader())

    def loss_of(model, words):
        each = cross_entropy(model(words[:, :-1]).transpose(1, 2), words[:, 1:], reduction="none")
        counts = words[:, 1:] != PAD
        loss = (each * counts).sum()
        return loss / counts.sum() if right else loss

    fit(model, adam(model), loss_of, padded_batches())


def sliced_apart(right: bool) -> None:
    """As in https://github.com/sandyresearch/parcae/issues/10: each rank shuffles, then slices."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    (words,) = texts().tensors
    chance = torch.Generator().manual_seed(0 if right else rank)
    data = TensorDataset(words[torch.randperm(len(words), generator=chance)[rank::world]])
    model = DistributedDataParallel(Net())
    loader = DataLoader(data, 4)
    steps(model, adam(model), (words for _ in range(3) for (words,) in loader))


def skipped_anew(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/2823: another order is skipped."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    order = DataLoaderConfiguration(use_seedable_sampler=right)
    accelerator = Accelerator(cpu=True, dataloader_config=order)
    model = Net()
    loader = DataLoader(texts(), 4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, adam(model), loader)
    loader.set_epoch(1)
    for (words,) in accelerator.skip_first_batches(loader, 2):
        accelerator.backward(model(words, labels=words))
        optimizer.step()
        optimizer.zero_grad()


def stretched_function(right: bool) -> None:
    """As in https://discuss.huggingface.co/t/170057: a function of the script's has batches."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, loader = Net(), DataLoader(texts(), 2, drop_last=True)
    optimizer, total = adam(model), 4 * len(loader)
    total = total // 4 if right else total
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / total))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(4):
        for (words,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(words, labels=words))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()


def saved_by_accelerate(right: bool) -> None:
    """As in https://taourl.com/read-1970744.html: weights without the optimizer."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    path = os.path.join(folder[0], "last.pt")
    for is_resumed in (False, True):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if is_resumed:
            kept = torch.load(path)
            model.load_state_dict(kept["model"])
            if right:
                optimizer.load_state_dict(kept["optimizer"])
        model, optimizer = accelerator.prepare(model, optimizer)
        steps(model, optimizer, batches())
        weights = accelerator.unwrap_model(model).state_dict()
        accelerator.save({"model": weights, "optimizer": optimizer.state_dict()}, path)
        accelerator.wait_for_everyone()


def accumulation_unstated(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/discussions/2340: only the script has it."""
    import deepspeed

    args = Namespace(gradient_accumulation_steps=2)
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
    if right:
        config |= vars(args)
    model = Net()
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam(model), config=config)
    for words in islice(batches(), STEPS):
        engine.backward(engine(words, labels=words))
        engine.step()


class Table:
    """A data set like those of datasets: it has columns, and slices of them."""

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts, self.column_names = texts, ["input_ids"]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place):
        return {"input_ids": self.texts[place]}

    def select_columns(self, _names):
        return self

    with_format = select_columns


def cut_short(right: bool) -> None:
    """As in https://github.com/unslothai/unsloth/issues/2904: answers longer than the limit."""

    def collated(samples):
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(sample["input_ids"]) for sample in samples], True, PAD
        )
        labels = torch.where(ids == PAD, -100, ids)
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}

    table = Table([row if right else row[:7] for row in rows() if len(row) != 7])
    trainer(small("Llama"), table, data_collator=collated).train()


def drawn_in_parts(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/issues/2650: after the weights are divided."""
    import deepspeed

    def begun(module):
        if isinstance(module, torch.nn.Linear):
            module.weight.data.normal_(0.0, 0.02)

    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Net()
    weights = list(model.parameters()) if right else []
    with deepspeed.zero.GatheredParameters(weights, modifier_rank=0):
        model.apply(begun)
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam(model), config=config)
    for words in islice(batches(), STEPS):
        engine.backward(engine(words, labels=words))
        engine.step()


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(padding_masked, padding_counted, unshifted, shifted_again, times_ranks),
                *(always_equal, in_a_list, broadcast, evaluated_training, scaler_left_out),
                *(ordered_apart, drawn_again, gathered_in_vain, merged_in_vain, summed_labels),
                *(sliced_apart, skipped_anew, stretched_function, saved_by_accelerate),
                *(accumulation_unstated, cut_short, drawn_in_parts),
            )
        }
    )
