"""Epochs in the same order and clipping without gradients, each with a clean twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel, fsdp
from safe_launch.guards.checks import (
    adapters,
    backward,
    clipping,
    dtypes,
    epochs,
    held_parameters,
    trainer_losses,
)
from safe_launch.guards.checks.optimizers import Watch
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far by the first of two ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


@pytest.fixture
def model() -> Iterator[Any]:
    """A model on sharded samples."""
    found = torch.nn.Linear(1, 1)
    data_parallel.others.add(found)
    yield found
    data_parallel.others.discard(found)


def test_each_epoch_in_the_first_ones_order(
    told: Told, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent if the epoch is set, without shuffling or training, or in evaluation."""
    data, steps = torch.utils.data, 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)

    def two_epochs(*, shuffles: bool = True, sets: bool = False) -> None:
        nonlocal steps
        sampler = data.DistributedSampler(range(8), num_replicas=2, rank=0, shuffle=shuffles)
        for epoch in range(2):
            if sets:
                sampler.set_epoch(epoch)
            epochs.begin(data.DataLoader(range(8), sampler=sampler))
            steps += 4

    two_epochs(sets=True)
    two_epochs(shuffles=False)
    with torch.no_grad():
        two_epochs()
    model.eval()
    two_epochs()
    model.train()
    assert not told()
    two_epochs()
    (said,) = told()
    assert "its epoch is still 0 (it may be meant)" in said


def test_nothing_to_clip(told: Told, model: Any) -> None:
    """An engine holds the gradients itself."""
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_)
    model(torch.ones(1, 1)).sum().backward()
    norm = clip(model.parameters(), 0.1)
    assert norm > 1
    assert model.weight.grad.abs() < 0.1
    assert not told()
    model.zero_grad()
    clip(model.parameters(), 0.1)
    model.gradient_clipping = float
    clip(list(model.parameters()), 0.1)
    (said, by_engine) = told()
    assert "none of 2 parameters has a gradient there (it may be meant)" in said
    assert "as DeepSpeed holds them [" in by_engine
    assert "gradient_clipping" in by_engine


def test_scaled_gradients(told: Told, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unscaled gradients and disabled scalers are no finding."""
    kind = torch.amp.GradScaler
    for name in ("scale", "unscale_", "step", "update"):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    module = ModuleType(dtypes.SCALER)
    module.GradScaler = kind  # type: ignore[attr-defined]
    dtypes.install(module)
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for unscales, is_on in ((True, True), (False, False), (False, True)):
        assert not told()
        scaler = kind("cpu", enabled=is_on)
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        if unscales:
            scaler.unscale_(optimizer)
        clip(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    (said,) = told()
    assert "still multiplied by the loss scale" in said


def test_clipping_before_another_pass(told: Told, model: Any) -> None:
    """Silent if gradients were used or cleared, if the pass adds nothing, or without a limit."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Watch(optimizer)
    passing = backward._counted(torch.autograd.backward)
    frozen = torch.nn.Linear(1, 1)

    def two_passes(between: Callable[[], object], limit: float = 0.1, other: Any = model) -> None:
        clip = clipping._looking(torch.nn.utils.clip_grad_norm_)
        passing(model(torch.ones(1, 1)).sum())
        clip(model.parameters(), limit)
        between()
        passing(other(torch.ones(1, 1)).sum())
        optimizer.zero_grad()

    def stepped() -> None:
        watch.before(optimizer, (), {})

    two_passes(stepped)
    two_passes(optimizer.zero_grad)
    two_passes(lambda: optimizer.zero_grad(set_to_none=False))
    two_passes(object, other=frozen)
    two_passes(object, limit=float("inf"))
    assert not told()
    two_passes(object)
    (said,) = told()
    assert "gradients are clipped before the step's last backward pass" in said


def test_shards_that_are_clipped_alone(told: Told) -> None:
    """Silent if FSDP 1 leaves the parameters whole, or nothing is limited."""
    model = torch.nn.Linear(1, 1)
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_)
    model(torch.ones(1, 1)).sum().backward()
    fsdp.flat.add(model)
    model.sharding_strategy = SimpleNamespace(name="NO_SHARD")
    clip(model.parameters(), 0.1)
    model.sharding_strategy = SimpleNamespace(name="HYBRID_SHARD")
    clip(model.parameters(), float("inf"))
    assert not told()
    clip(model.parameters(), 0.1)
    (said,) = told()
    assert "clips each rank's shards by their own norm: " in said


@pytest.mark.parametrize(
    ("labels", "is_kept", "is_found"),
    [
        ([[-100, 4, 5], [-100, 7]], False, True),
        ([[-100, 4, 5], [-100, 7]], True, False),
        ([[3, 4, 5], [6, 7]], False, False),
        ([None, None], False, False),
    ],
)
def test_labels_that_a_collator_replaces(
    told: Told, labels: list[Any], is_kept: bool, is_found: bool
) -> None:
    """Silent if it keeps them, and if the samples have none or leave nothing out."""

    class DataCollatorForLanguageModeling:
        mlm = False

        def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
            given = [each.get("labels") if is_kept else each["input_ids"] for each in examples]
            return {"labels": torch.tensor([[*each, -100][:3] for each in given])}

    module = ModuleType(__name__)
    module.DataCollatorForLanguageModeling = (  # type: ignore[attr-defined]
        DataCollatorForLanguageModeling
    )
    trainer_losses.install(module)
    samples: list[dict[str, Any]] = [{"input_ids": [3, 4, 5]}, {"input_ids": [6, 7]}]
    for sample, own in zip(samples, labels, strict=True):
        sample |= {} if own is None else {"labels": own}
    DataCollatorForLanguageModeling().torch_call(samples)
    assert [("replaces the samples' labels: 2 of" in line) for line in told()] == [True] * is_found


def test_batches_that_are_skipped_again(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent for one epoch, for a look without a step, and for nothing skipped."""
    data, steps = torch.utils.data, 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)
    module = ModuleType(epochs.ACCELERATE)
    module.skip_first_batches = lambda loader, _count: loader  # type: ignore[attr-defined]
    epochs.install(module)

    def epochs_of(skipped: int, count: int, made: int = 4) -> None:
        nonlocal steps
        loader = module.skip_first_batches(data.DataLoader(range(8)), skipped)
        for _ in range(count):
            epochs.begin(loader)
            steps += made

    epochs_of(2, 1)
    epochs_of(0, 2)
    epochs_of(2, 3, made=0)
    assert not told()
    epochs_of(2, 2)
    (said,) = told()
    assert "its first 2 batches are skipped in each" in said


def test_what_the_groups_of_an_optimizer_spare() -> None:
    """Norm layers of a model of transformers' that decay beside spared biases; not of others."""
    layer = type("RMSNorm", (torch.nn.LayerNorm,), {})
    for module, is_found in (("transformers.models.llama", True), ("own", False)):
        model = type("Model", (torch.nn.Sequential,), {"__module__": module})(
            torch.nn.Linear(4, 4), layer(4)
        )
        names = {id(each): name for name, each in model.named_parameters()}
        vectors = [model[0].bias, model[1].bias]
        weights = {"params": [model[0].weight, model[1].weight], "weight_decay": 0.1}
        spared = torch.optim.AdamW([weights, {"params": vectors, "weight_decay": 0.0}])
        lines = [each.line for each in held_parameters.decayed(spared, names, [model]) if each]
        assert len(lines) == is_found
        assert not lines or "1.weight" in lines[0]
        whole = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
        assert not any(held_parameters.decayed(whole, names, [model]))


def test_adapters_that_are_frozen() -> None:
    """Beside what is trained; silent if one of several is trained, or nothing is."""
    layer = type("Layer", (torch.nn.Linear,), {"adapter_layer_names": ("lora_A", "lora_B")})(4, 4)
    layer.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(4, 4)})
    model = torch.nn.Sequential(layer, torch.nn.Linear(4, 4))
    assert not [*adapters.judged([model])]
    layer.lora_A.requires_grad_(False)
    (found,) = adapters.judged([model])
    assert "0.lora_A requires no gradient" in found.line
    layer.lora_A["other"] = torch.nn.Linear(4, 4)
    assert not [*adapters.judged([model])]
    assert not [*adapters.judged([model.requires_grad_(False)])]


@pytest.mark.parametrize("is_lost", [False, True])
def test_steps_that_a_scaler_skips(told: Told, model: Any, is_lost: bool) -> None:
    """Whatever else counts steps, as the Trainer, which counts later."""
    observations.count_steps(lambda: 0)
    kind = type("GradScaler", (torch.amp.GradScaler,), {})
    module = ModuleType("torch.amp.grad_scaler")
    module.GradScaler = kind  # type: ignore[attr-defined]
    dtypes.install(module)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-3), kind("cpu")
    for step in range(60):
        factor = float("inf") if is_lost or step < 20 else 1.0
        scaler.scale(model(torch.ones(1, 1)).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert bool(told()) is is_lost
    assert all("has skipped the last 25 steps" in line for line in told())
