"""The FSDP guard's changes and observations on stand-ins."""

from __future__ import annotations

import functools
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.settings import Setting, Value
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Message, Remark
from safe_launch.guards import fsdp
from support.lazy import Lazy

torch = Lazy("torch")
wrap = Lazy("torch.distributed.fsdp.wrap")


class CPUOffloadPolicy:
    """Has the signature of torch's."""


@pytest.fixture(autouse=True)
def of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of two ranks, without modules sharded by other tests."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(fsdp, "_units", [])


def fully_shard(module: Any, **_told: Any) -> Any:
    """A stand-in for torch's."""
    return module


class FullyShardedDataParallel:
    """A stand-in for torch's."""


class FSDPState:
    """A stand-in for torch's."""

    def _lazy_init(self) -> None:
        """Runs at the beginning of every pass."""


@pytest.fixture
def torchs() -> tuple[Any, Any]:
    """Torch's guarded modules: the public one and that of the states."""
    public, states = ModuleType(fsdp.TORCHS), ModuleType(fsdp.FSDP_BEGINS.module)
    public.fully_shard = fully_shard  # type: ignore[attr-defined]
    public.FullyShardedDataParallel = type("F", (FullyShardedDataParallel,), {})  # type: ignore[attr-defined]
    states.FSDPState = type("FSDPState", (FSDPState,), {})  # type: ignore[attr-defined]
    for module in (public, states):
        fsdp.install(module)
    return public, states


Torchs = tuple[Any, Any]


def model(*, trained: bool = True) -> torch.nn.Sequential:
    """A model of two layers."""
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    return layers.requires_grad_(trained)


def test_layers_that_are_freed(torchs: Torchs) -> None:
    """Seen at the first pass; reduction defaults to the computed type."""
    public, states = torchs
    net = model()
    policy = SimpleNamespace(param_dtype=torch.bfloat16, reduce_dtype=None)
    for layer in net:
        public.fully_shard(layer, mp_policy=policy)
    assert public.fully_shard(net, mp_policy=policy) is net
    assert not observations.observed
    states.FSDPState()._lazy_init()
    assert (
        observations.observed.items()
        >= {
            "engine": "fsdp",
            "fsdp_version": 2,
            "fsdp_units": "layers",
            "reshard_after_forward": True,
            "offload": "none",
            "precision": "bf16",
            "master_precision": "fp32",
            "reduce_precision": "bf16",
        }.items()
    )
    assert "model_parallel" not in observations.observed
    assert list(observations.models()) == [net]
    observations.observed.clear()
    states.FSDPState()._lazy_init()
    assert not observations.observed


@pytest.mark.parametrize(
    ("told", "by_layers", "expected"),
    [
        ({"reshard_after_forward": False}, True, {"reshard_after_forward": False}),
        ({}, False, {"fsdp_units": "whole", "precision": "fp32", "reduce_precision": "fp32"}),
        ({"offload_policy": CPUOffloadPolicy()}, False, {"offload": "optimizer_and_parameters"}),
        ({"mesh": SimpleNamespace(size=lambda _: 1)}, True, {"model_parallel": 1}),
    ],
)
def test_other_ways(
    told: dict[str, Any], by_layers: bool, expected: dict[str, Value], torchs: Torchs
) -> None:
    """Kept, sharded as a whole, offloaded, copies of shards."""
    public, states = torchs
    net = model()
    if by_layers:
        public.fully_shard([net[0], net[1]], **told)
    public.fully_shard(net, **told)
    states.FSDPState()._lazy_init()
    assert observations.observed.items() >= expected.items()


def test_embedding_and_head_are_no_layers(torchs: Torchs) -> None:
    """Accelerate shards them even if no layer is a unit."""
    public, states = torchs
    net = torch.nn.Sequential(torch.nn.Embedding(2, 2), model(), torch.nn.Linear(2, 2))
    for place in (0, 2):
        public.fully_shard(net[place])
    public.fully_shard(net)
    states.FSDPState()._lazy_init()
    assert observations.observed["fsdp_units"] == "whole"


@pytest.mark.parametrize(
    ("classes", "trained", "named"),
    [(set(), True, ["Block"]), (set(), False, []), ({"Block"}, True, []), (None, True, [])],
    ids=["none", "frozen", "given", "by size"],
)
def test_layers_that_accelerate_does_not_find(
    classes: set[str] | None, named: list[str], *, trained: bool
) -> None:
    """A line names their classes if accelerate should wrap by layer."""

    class Block(torch.nn.Sequential):
        """A layer."""

    class FullyShardedDataParallelPlugin:
        """Like accelerate's, it looks for the classes once it has the model."""

        def __post_init__(self) -> None:
            self.auto_wrap_policy: object = wrap.transformer_auto_wrap_policy

        def set_auto_wrap_policy(self, model: torch.nn.Module) -> None:
            if model is not None and classes is not None:
                told = functools.partial(
                    wrap.transformer_auto_wrap_policy,
                    transformer_layer_cls={Block} if classes else set(),
                )
                self.auto_wrap_policy = told

    module, sent = ModuleType(fsdp.PLUGIN), list[Message]()
    module.FullyShardedDataParallelPlugin = FullyShardedDataParallelPlugin  # type: ignore[attr-defined]
    fsdp.install(module)
    observations.report_to(sent.append)
    parts = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    layers = torch.nn.ModuleList([Block(torch.nn.Linear(2, 2)), Block(torch.nn.Linear(2, 2))])
    net = torch.nn.ModuleDict({"own": layers, "parts": parts}).requires_grad_(trained)
    plugin = module.FullyShardedDataParallelPlugin()
    plugin.__post_init__()
    plugin.set_auto_wrap_policy(net)
    told = [each.sentence for each in sent if isinstance(each, Remark)]
    assert [re.findall("TO_WRAP=([^ ]+)", each) for each in told] == [named] * bool(named)


def test_what_is_not_trained_and_what_is_gone(torchs: Torchs) -> None:
    """A reference model and a freed model are ignored."""
    public, states = torchs
    reference = model(trained=False)
    public.fully_shard(reference)
    public.fully_shard(model())
    states.FSDPState()._lazy_init()
    assert not observations.observed


def test_the_first_version(torchs: Torchs) -> None:
    """FSDP1 reports what only it has."""
    public, _ = torchs
    public.FullyShardedDataParallel()
    assert observations.observed == {"engine": "fsdp", "fsdp_version": 1}


def test_a_torch_without_the_second_version() -> None:
    """Only FSDP1 is wrapped."""
    public = ModuleType(fsdp.TORCHS)
    public.FullyShardedDataParallel = FullyShardedDataParallel  # type: ignore[attr-defined]
    fsdp.install(public)
    assert not hasattr(public, "fully_shard")


@pytest.mark.parametrize(("version", "expected"), [(2, False), (1, "FULL_SHARD")])
def test_the_plan_decides_what_accelerate_tells(
    version: int, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reshard switch of FSDP2 is set; FSDP1's strategies stay."""

    class Block(torch.nn.Sequential):
        """A layer."""

    class FullyShardedDataParallelPlugin:
        """A stand-in for accelerate's."""

        def __post_init__(self) -> None:
            self.fsdp_version = version
            self.reshard_after_forward: object = True if version == 2 else "FULL_SHARD"

    module = ModuleType(fsdp.PLUGIN)
    module.FullyShardedDataParallelPlugin = FullyShardedDataParallelPlugin  # type: ignore[attr-defined]
    fsdp.install(module)
    changed = preset.encode({Setting.RESHARD_AFTER_FORWARD: False})
    monkeypatch.setenv(preset.OVERRIDES_VARIABLE, changed)
    plugin = FullyShardedDataParallelPlugin()
    plugin.__post_init__()
    assert plugin.reshard_after_forward == expected
    fsdp.install(ModuleType(fsdp.PLUGIN))  # a version without it
