"""Further trainings that go wrong without an error, as people have reported them, and done right.

trains_in_vain.py NAME... [--right]
"""

import contextlib
import copy
import os

import torch
from says_words import ACCUMULATION, STEPS, WORDS, Net, adam, batches, run, steps, texts
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, random_split

RANK = int(os.environ["RANK"])


def llama() -> torch.nn.Module:
    """A language model of transformers'."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": WORDS}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads))


def trained_by_trainer(model: torch.nn.Module, masked: int = 0, **asked) -> None:
    """Transformers' Trainer, on texts whose first words are a question."""
    from transformers import Trainer, TrainingArguments

    data = []
    for (words,) in texts():
        labels = words.clone()
        labels[:masked] = -100
        data.append({"input_ids": words, "labels": labels})
    asked = {"max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True, **asked}
    arguments = TrainingArguments("out", save_strategy="no", learning_rate=1e-2, **asked)
    Trainer(model, arguments, train_dataset=data).train()


def cleared(right: bool) -> None:
    """As in https://github.com/Tony-Y/pytorch_warmup/issues/12."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        if right:
            optimizer.zero_grad(set_to_none=False)
        model(words, labels=words).backward()
        if not right:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()


def never_cleared(right: bool) -> None:
    """As in https://github.com/wenet-e2e/wekws/issues/72."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        if right:
            optimizer.zero_grad(set_to_none=False)


def clipped_late(right: bool) -> None:
    """As in https://github.com/VGraphRNN/VGRNN/issues/4."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        optimizer.zero_grad()
        model(words, labels=words).backward()
        if right:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not right:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def still_evaluating(right: bool, after: int = 3) -> None:
    """As in https://github.com/fartashf/vsepp/issues/4."""
    net = Net()
    net.hidden = torch.nn.Sequential(net.hidden, torch.nn.Dropout(0.1))
    model = DistributedDataParallel(net)
    optimizer, source = adam(model), batches()
    for step in range(after + STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == after:
            model.eval()
            with torch.no_grad():
                model(words, labels=words)
            if right:
                model.train()


def evaluating_late(right: bool) -> None:
    """As in https://github.com/ThilinaRajapakse/simpletransformers/issues/941."""
    still_evaluating(right, after=STEPS)


def warming_up(right: bool) -> None:
    """As in https://github.com/Morizeyao/GPT2-Chinese/issues/60."""
    from transformers import get_linear_schedule_with_warmup

    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    warmup = STEPS // 4 if right else 2000
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, STEPS)
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def warming_up_trainer(right: bool) -> None:
    """As in https://github.com/google-research/bert/issues/834, on the Trainer."""
    trained_by_trainer(llama(), warmup_steps=3 if right else 500)


def never_averaged(right: bool) -> None:
    """As in https://github.com/MultimediaTechLab/YOLO/issues/97."""
    model = DistributedDataParallel(Net())
    average = copy.deepcopy(model.module)
    optimizer, source = adam(model), batches()
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()
        if right:
            with torch.no_grad():
                for one, other in zip(average.parameters(), model.parameters(), strict=True):
                    one.lerp_(other, 0.1)
    if RANK == 0:
        torch.save({"model": average.state_dict()}, "average.pt")


def replaced(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/12603."""
    net = Net()
    if right:
        net.head.weight = torch.nn.Parameter(torch.ones_like(net.head.weight) / 16)
    model = DistributedDataParallel(net)
    if not right:
        net.head.weight = torch.nn.Parameter(torch.ones_like(net.head.weight) / 16)
    steps(model, adam(model), batches())


def on_plateau(right: bool) -> None:
    """As in https://github.com/lucidrains/DALLE-pytorch/issues/268."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model, 1e-4), batches()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(STEPS):
        words = next(source)
        loss = model(words, labels=words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if right:
            torch.distributed.all_reduce(loss)
        schedule.step(loss)


def one_never_steps(right: bool) -> None:
    """As in https://github.com/zhaoyuzhi/deepfillv2/issues/6."""
    maker, judge = DistributedDataParallel(Net()), DistributedDataParallel(Net())
    of_maker, of_judge, source = adam(maker), adam(judge), batches()
    for _ in range(STEPS):
        words = next(source)
        of_judge.zero_grad()
        judge(words, labels=words).backward()
        if right:
            of_judge.step()
        of_maker.zero_grad()
        maker(words, labels=words).backward()
        of_maker.step()


def without_graph(right: bool) -> None:
    """As in https://github.com/rll-research/cic/issues/5."""

    class Encoded(Net):
        def forward(self, words, labels):
            with contextlib.nullcontext() if right else torch.no_grad():
                found = torch.relu(self.hidden(self.embedding(words)))
            return cross_entropy(self.head(found).flatten(0, 1), labels.flatten())

    model = DistributedDataParallel(Encoded(), find_unused_parameters=True)
    steps(model, adam(model), batches())


def split_apart(right: bool) -> None:
    """As in https://github.com/Lightning-AI/pytorch-lightning/issues/7728."""
    model = DistributedDataParallel(Net())
    torch.manual_seed(0 if right else RANK)
    data, _ = random_split(texts(), [80, 16])
    sampler = DistributedSampler(data)
    optimizer, loader = adam(model), DataLoader(data, 4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (words,) in loader:
            model(words, labels=words).backward()
            optimizer.step()
            optimizer.zero_grad()


def unscaled(right: bool) -> None:
    """As in https://github.com/engichang1467/Open-Rig3R/issues/35."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    scaler = torch.amp.GradScaler("cpu", enabled=right)
    for _ in range(STEPS):
        words = next(source)
        with torch.autocast("cpu", torch.float16):
            loss = model(words, labels=words)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def summed(right: bool) -> None:
    """As in https://github.com/hirofumi0810/neural_sp/issues/168."""
    model = DistributedDataParallel(Net())
    optimizer, source = adam(model), batches()
    for number in range(STEPS * ACCUMULATION):
        words = next(source)
        is_last = (number + 1) % ACCUMULATION == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = model(words, labels=words)
            if right:
                loss = loss / ACCUMULATION
            loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def thawed(right: bool) -> None:
    """As in https://github.com/facebookresearch/detectron2/issues/2486."""
    net = Net()
    net.hidden.requires_grad_(False)
    optimizer, model, source = adam(net), DistributedDataParallel(net), batches()
    for step in range(STEPS):
        if step == 2:
            net.hidden.requires_grad_(True)
            model = DistributedDataParallel(net) if right else model
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()


def not_loaded(right: bool) -> None:
    """As in https://github.com/pytorch/examples/issues/1029."""
    held = {f"model.{name}": value for name, value in Net().state_dict().items()}
    net = Net()
    if right:
        held = {name.removeprefix("model."): value for name, value in held.items()}
    net.load_state_dict(held, strict=False)
    model = DistributedDataParallel(net)
    steps(model, adam(model), batches())


def scaled_apart(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/136009."""
    model = DistributedDataParallel(Net())
    optimizer, source = torch.optim.SGD(model.parameters(), 0.1), batches()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (8 if right else 8 + RANK))
    for _ in range(STEPS):
        words = next(source)
        scaler.scale(model(words, labels=words)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def unprepared(right: bool) -> None:
    """As in https://github.com/QwenLM/Qwen3-TTS/pull/326, with accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
    net = Net()
    optimizer = adam(net)
    model = accelerator.prepare(net)
    optimizer = accelerator.prepare(optimizer) if right else optimizer
    source = batches()
    for _ in range(STEPS * ACCUMULATION):
        words = next(source)
        with accelerator.accumulate(model):
            accelerator.backward(model(words, labels=words))
            optimizer.step()
            optimizer.zero_grad()


def adapted_late(right: bool) -> None:
    """As in https://github.com/adapter-hub/adapters/issues/260, with PEFT."""
    from peft import LoraConfig, get_peft_model

    base = llama()
    before = adam(base)
    net = get_peft_model(base, LoraConfig(target_modules=["q_proj", "v_proj"]))
    optimizer = adam(net) if right else before
    model, source = DistributedDataParallel(net), batches()
    for _ in range(STEPS):
        words = next(source)
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def adapted_twice(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/2115."""
    from peft import LoraConfig, PeftModel, get_peft_model

    chosen = LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    folder = f"adapters-{RANK}"
    get_peft_model(llama(), chosen).save_pretrained(folder)
    base = llama() if right else get_peft_model(llama(), chosen)
    model = DistributedDataParallel(PeftModel.from_pretrained(base, folder, is_trainable=True))
    trained = adam(torch.nn.ParameterList(p for p in model.parameters() if p.requires_grad))
    source = batches()
    for _ in range(STEPS):
        words = next(source)
        model(input_ids=words, labels=words).loss.backward()
        trained.step()
        trained.zero_grad()


def cut_off(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/6668, with the Trainer."""
    trained_by_trainer(llama(), masked=4 if right else 8)


def engine_of(net: torch.nn.Module, **more: object) -> object:
    """DeepSpeed's engine, with an optimizer of its configuration."""
    import deepspeed

    optimizer = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
    return deepspeed.initialize(model=net, config=config | {"optimizer": optimizer} | more)


def other_schedule(right: bool) -> None:
    """As in https://github.com/EleutherAI/gpt-neox/issues/1029, with DeepSpeed."""
    net = Net()
    optimizer = adam(net)
    engine, made, *_ = engine_of(net)
    schedule = torch.optim.lr_scheduler.StepLR(getattr(made, "optimizer", made), 2)
    if not right:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    source = batches()
    for _ in range(STEPS):
        words = next(source)
        engine.backward(engine(words, labels=words))
        engine.step()
        schedule.step()


def overruled(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/issues/7303."""
    rates = {"warmup_num_steps": 2} | ({"warmup_max_lr": 1e-5} if right else {})
    optimizer = {"type": "Adam", "params": {"lr": 1e-5, "torch_adam": True}}
    engine, *_ = engine_of(
        Net(), scheduler={"type": "WarmupLR", "params": rates}, optimizer=optimizer
    )
    source = batches()
    for _ in range(STEPS):
        words = next(source)
        engine.backward(engine(words, labels=words))
        engine.step()


def fully_sharded(net: torch.nn.Module, *parts: torch.nn.Module) -> torch.nn.Module:
    """Sharded by FSDP2, part by part."""
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for part in parts:
        fully_shard(part, mesh=mesh)
    return net


def own_shard(right: bool) -> None:
    """As in https://github.com/ibrahimethemhamamci/CT-CLIP/issues/16, with FSDP2."""
    net = Net()
    fully_sharded(net, net)
    steps(net, adam(net), batches())
    whole = "full_tensor" if right else "to_local"
    held = {name: getattr(value, whole)() for name, value in net.state_dict().items()}
    if RANK == 0:
        torch.save(held, "weights.pt")


def without_root(right: bool) -> None:
    """As in https://github.com/Tencent-Hunyuan/UniRL/pull/7, with FSDP2."""
    net = Net()
    fully_sharded(net, net.hidden, *([net] if right else []))
    steps(net, adam(net), batches())


FAULTS = {
    one.__name__: one
    for one in (
        *(
            cleared,
            never_cleared,
            clipped_late,
            still_evaluating,
            evaluating_late,
            warming_up,
            warming_up_trainer,
            never_averaged,
            replaced,
        ),
        *(on_plateau, one_never_steps, without_graph, split_apart, unscaled),
        *(summed, thawed, not_loaded, scaled_apart, unprepared, adapted_late, adapted_twice),
        *(cut_off, other_schedule, overruled, own_shard, without_root),
    )
}
run(FAULTS)
