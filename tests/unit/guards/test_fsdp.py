"""What the guard of FSDP sets and sees, on as much of it as it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safe_launch.core import preset
from safe_launch.core.settings import Setting, Value
from safe_launch.evidence.observations import Observations
from safe_launch.guards import fsdp


class CPUOffloadPolicy:
    """Called like torch's."""


def group(*, freed: bool, shards: int = 2, policy: object = None) -> SimpleNamespace:
    """Parameters that are gathered together."""
    return SimpleNamespace(
        post_forward_mesh_info=object() if freed else None,
        mp_policy=SimpleNamespace(param_dtype=torch.bfloat16, reduce_dtype=None),
        mesh_info=SimpleNamespace(mesh=SimpleNamespace(size=lambda _dimension: shards)),
        offload_policy=policy,
    )


class FSDPState:
    """Torch's, since 2.12 with several groups for a module."""

    _is_root: bool | None = None

    def __init__(
        self, model: torch.nn.Module, own: Any, others: Sequence[Any], several: bool
    ) -> None:
        self._modules = (model,)
        groups = [SimpleNamespace(_fsdp_param_group=each) for each in others]
        if several:
            groups = [SimpleNamespace(_fsdp_param_groups=[each]) for each in others]
            self._fsdp_param_groups = [own]
        else:
            self._fsdp_param_group = own
        self._state_ctx = SimpleNamespace(all_states=[self, *groups])

    def _lazy_init(self) -> None:
        self._is_root = True


@pytest.fixture(autouse=True)
def of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)


def seen(own: Any, *others: Any, several: bool = True, trained: bool = True) -> dict[str, Value]:
    """What is noted when the root begins its first pass, and nothing at its second."""
    module = ModuleType(fsdp.STATES[0])
    module.FSDPState = type("FSDPState", (FSDPState,), {})  # type: ignore[attr-defined]
    observations = Observations()
    fsdp.install(module, observations)
    model = torch.nn.Linear(2, 2).requires_grad_(trained)
    root = module.FSDPState(model, own, others, several)
    root._lazy_init()
    found = dict(observations.observed)
    observations.observed.clear()
    root._lazy_init()
    assert not observations.observed
    return found


@pytest.mark.parametrize("several", [True, False], ids=["2.13", "2.6"])
def test_layers_that_are_freed(several: bool) -> None:
    """The root isn't; without a type of their own gradients are reduced as they are computed."""
    found = seen(group(freed=False), group(freed=True), group(freed=True), several=several)
    assert (
        found.items()
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
    assert "model_parallel" not in found


def test_other_ways() -> None:
    """Kept, offloaded, the whole at once, copies of shards, and a model that isn't trained."""
    assert seen(group(freed=False), group(freed=False))["reshard_after_forward"] is False
    offloaded = group(freed=False, policy=CPUOffloadPolicy())
    assert seen(offloaded)["offload"] == "optimizer_and_parameters"
    assert seen(group(freed=False))["fsdp_units"] == "whole"
    assert "reshard_after_forward" not in seen(group(freed=False))
    assert seen(group(freed=False, shards=1))["model_parallel"] == 1
    assert not seen(group(freed=False), trained=False)


def test_another_version_has_other_names() -> None:
    """Then nothing is seen, and the training goes on."""
    assert not seen(SimpleNamespace())


@pytest.mark.parametrize(("version", "expected"), [(2, False), (1, "FULL_SHARD")])
def test_the_plan_decides_what_accelerate_tells(
    version: int, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second version's switch; the first has strategies, which stay."""

    class FullyShardedDataParallelPlugin:
        """accelerate's."""

        def __post_init__(self) -> None:
            self.fsdp_version = version
            self.reshard_after_forward: object = True if version == 2 else "FULL_SHARD"

    module = ModuleType(fsdp.PLUGIN)
    module.FullyShardedDataParallelPlugin = FullyShardedDataParallelPlugin  # type: ignore[attr-defined]
    fsdp.install(module, Observations())
    changed = preset.encode({Setting.RESHARD_AFTER_FORWARD: False})
    monkeypatch.setenv(preset.OVERRIDES_VARIABLE, changed)
    plugin = FullyShardedDataParallelPlugin()
    plugin.__post_init__()
    assert plugin.reshard_after_forward == expected
    fsdp.install(ModuleType(fsdp.PLUGIN), Observations())  # a version without it
