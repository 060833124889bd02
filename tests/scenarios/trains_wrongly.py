"""Trainings that go wrong without an error, as people have reported them, and the same done right.

trains_wrongly.py NAME... [--right]
"""

import contextlib
import os

import torch
from says_words import ACCUMULATION, STEPS, WORDS, Net, adam, batches, run, steps, texts
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, SequentialSampler


def unsynchronized(right: bool) -> None:
    """As in https://github.com/karpathy/build-nanogpt/pull/30."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        for micro in range(ACCUMULATION):
            words = next(source)
            if right:
                model.require_backward_grad_sync = micro == ACCUMULATION - 1
            loss = model(words, labels=words) / ACCUMULATION
            model.require_backward_grad_sync = micro == ACCUMULATION - 1
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def around(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/7245."""
    model = DistributedDataParallel(Net())
    steps(model if right else model.module, adam(model), batches())


def loaded_late(right: bool) -> None:
    """Weights are made anew behind DDP, as its documentation warns."""
    model = DistributedDataParallel(Net())
    if not right:
        torch.manual_seed(int(os.environ["RANK"]))
        for layer in (model.module.hidden, model.module.head):
            layer.reset_parameters()
    steps(model, adam(model), batches())


def resized(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/pull/3532."""
    net = Net()
    optimizer = adam(net)
    net.embedding = torch.nn.Embedding(WORDS + 8, 16)
    optimizer = adam(net) if right else optimizer
    steps(DistributedDataParallel(net), optimizer, batches())


def scheduled(right: bool) -> None:
    """As in https://github.com/h2oai/h2o-llmstudio/issues/663."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
    for step in range(STEPS):
        for micro in range(ACCUMULATION):
            words = next(source)
            is_last = micro == ACCUMULATION - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                (model(words, labels=words) / ACCUMULATION).backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
            if is_last or (step and not right):
                schedule.step()


def grain(right: bool) -> None:
    """As in https://github.com/workofart/ml-by-hand/pull/85."""
    model = DistributedDataParallel(Net() if right else Net().bfloat16())
    steps(model, adam(model, 1e-7), batches())


def half(right: bool) -> None:
    """As in https://github.com/afiaka87/glide-finetune/issues/5."""
    model = DistributedDataParallel(Net() if right else Net().half())
    steps(model, adam(model), batches())


def ignored(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/1191."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        labels = words.clone()
        labels[:, : 4 if right else None] = -100
        model(words, labels=labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def undivided(right: bool) -> None:
    """As in https://github.com/openspeech-team/openspeech/issues/149."""
    model = DistributedDataParallel(Net())
    steps(model, adam(model), batches(None if right else SequentialSampler(texts())))


def seeds(right: bool) -> None:
    """As in https://github.com/NVlabs/LongLive/issues/71."""
    model = DistributedDataParallel(Net())
    seed = 5 if right else 5 * int(os.environ["RANK"])
    steps(model, adam(model), batches(DistributedSampler(texts(), seed=seed)))


def renewed(right: bool) -> None:
    """As in https://github.com/leohsuofnthu/Pytorch-IterativeFCN/issues/7."""
    model = DistributedDataParallel(Net())
    steps(model, adam(model), batches(is_renewed=not right))


def frozen(right: bool) -> None:
    """As in https://github.com/facebookresearch/fairseq/issues/4702."""
    net = Net()
    optimizer, model, source = adam(net), DistributedDataParallel(net), batches()
    for step in range(STEPS):
        if step == 2:
            net.hidden.requires_grad_(False)
            model = DistributedDataParallel(net)
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=right)


def empty(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/20082."""
    import deepspeed

    net = Net()
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    config["zero_allow_untested_optimizer"] = True
    engine, *_ = deepspeed.initialize(model=net, optimizer=adam(net), config=config)
    source = batches()
    for _ in range(2):
        words = next(source)
        engine.backward(engine(words, labels=words))
        engine.step()
    weights = list(net.parameters())
    with deepspeed.zero.GatheredParameters(weights if right else []):
        if os.environ["RANK"] == "0":
            torch.save(net.state_dict(), "weights.pt")


def misaligned(right: bool) -> None:
    """As in https://github.com/modelscope/FunASR/pull/3472."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for number in range(STEPS * ACCUMULATION):
        is_last = (number + 1) % ACCUMULATION == 0
        is_synchronized = is_last if right else number % ACCUMULATION == 0
        words = next(source)
        with contextlib.nullcontext() if is_synchronized else model.no_sync():
            (model(words, labels=words) / ACCUMULATION).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def unwrapped(right: bool) -> None:
    """As in https://github.com/kohya-ss/sd-scripts/issues/924."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = Net()
    model, optimizer = accelerator.prepare(net, adam(net))
    model, source = model if right else accelerator.unwrap_model(model), batches()
    for _ in range(STEPS):
        words = next(source)
        accelerator.backward(model(words, labels=words))
        optimizer.step()
        optimizer.zero_grad()


def alone(right: bool) -> None:
    """As in https://github.com/OpenTSLM/OpenTSLM/pull/49, averaged by the loop if right."""
    net = Net()
    optimizer, source = adam(net), batches()
    for _ in range(STEPS):
        words = next(source)
        net(words, labels=words).backward()
        for parameter in net.parameters() if right else ():
            torch.distributed.all_reduce(parameter.grad)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()


def idle(right: bool) -> None:
    """As in https://github.com/datamol-io/graphium/pull/412."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        loss = model(words, labels=words)
        (loss if right or os.environ["RANK"] == "0" else loss * 0).backward()
        optimizer.step()
        optimizer.zero_grad()


def reentered(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/pull/89781, with FSDP2 and a block run twice."""
    from torch.distributed.fsdp import fully_shard
    from torch.utils.checkpoint import CheckpointFunction

    class Twice(Net):
        def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            found = self.embedding(words)
            for _ in range(2):
                again = (self.hidden, True, found)
                found = torch.tanh(
                    self.hidden(found) if right else CheckpointFunction.apply(*again)
                )
            return cross_entropy(self.head(found).flatten(0, 1), labels.flatten())

    net = Twice()
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for module in (net.hidden, net):
        fully_shard(module, mesh=mesh)
    steps(net, adam(net), batches())


def made_early(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/pull/3394."""
    from torch.distributed.fsdp import fully_shard

    net = Net()
    optimizer = adam(net)
    fully_shard(net, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    steps(net, adam(net) if right else optimizer, batches())


def around_head(right: bool) -> None:
    """As in https://github.com/moojink/openvla-oft/issues/160."""
    body, head = DistributedDataParallel(Net()), DistributedDataParallel(torch.nn.Linear(8, 16))
    optimizer, source = adam(torch.nn.ModuleList([body.module, head.module])), batches()
    for _ in range(STEPS):
        words = next(source)
        loss = body(words, labels=words)
        found = (head if right else head.module)(words.float())
        (loss + found.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


def too_short(right: bool) -> None:
    """As in https://github.com/Lightricks/LTX-Video-Trainer/issues/67."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = Net()
    optimizer = adam(net)
    length = STEPS * accelerator.num_processes if right else STEPS // 2
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, length)
    model, optimizer, schedule = accelerator.prepare(net, optimizer, schedule)
    source = batches()
    for _ in range(STEPS):
        words = next(source)
        accelerator.backward(model(words, labels=words))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def parted(right: bool) -> None:
    """As in https://github.com/huggingface/peft/pull/2879, on the Trainer."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": WORDS}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True))
    if not right:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    data = [{"input_ids": words, "labels": words} for (words,) in texts()]
    asked = TrainingArguments(
        "out", max_steps=4, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    Trainer(model, asked, train_dataset=data).train()


def offloaded(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/pull/7967; the first engine is right."""
    import deepspeed

    for accumulation in (1, 1 if right else 3):
        net = Net()
        config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True}
        config |= {"gradient_accumulation_steps": accumulation, "gradient_clipping": 0.1}
        config["zero_optimization"] = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
        config["zero_force_ds_cpu_optimizer"] = False
        engine, *_ = deepspeed.initialize(model=net, optimizer=adam(net), config=config)
        source = batches()
        for _ in range(STEPS):
            words = next(source)
            engine.backward(engine(words, labels=words))
            engine.step()
        engine.destroy()


FAULTS = {
    one.__name__: one
    for one in (
        *(unsynchronized, around, loaded_late, resized, scheduled, grain, half, ignored),
        *(undivided, seeds, renewed, frozen, empty),
        *(misaligned, unwrapped, alone, idle, reentered, made_early),
        *(around_head, too_short, parted, offloaded),
    )
}
run(FAULTS)
