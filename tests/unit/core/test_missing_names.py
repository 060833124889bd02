"""For each missing private name, one line states what is lost, and all else still works."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch import inner_launch
from safe_launch.checkpoints import checkpoint
from safe_launch.checks.finding import VARIABLE
from safe_launch.core import private_names as names
from safe_launch.core.private_names import NAMES, MissingNameError, PrivateName
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import EndOfQueryError, Message, Remark
from safe_launch.frameworks.config_files import accelerate
from safe_launch.guards import (
    answering,
    checkpointing,
    data_parallel,
    deepspeed,
    done_twice,
    fsdp,
    install,
    loading,
    model_facts,
    optimizer,
    plan_query,
    progress,
    resuming,
)
from safe_launch.guards.checks import (
    accumulation,
    dtypes,
    emptied,
    gathers,
    gradient_places,
    graphs,
    loader_passes,
    losses,
    mixing,
    worker_draws,
)
from safe_launch.options import parser
from safe_launch.workers import start
from safe_launch.workers.forkserver import extra_imports
from support import new_worker
from support.lazy import Lazy
from support.pages import commands
from support.tables import table

torch = Lazy("torch")


@pytest.fixture(autouse=True, scope="module")
def whole() -> None:
    """Imports torch completely before a case replaces a part."""
    importlib.import_module("torch")


class World:
    """A case's inputs: the monkeypatch and a folder."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch, self.folder = patch, folder
        new_worker.begin()

    def module(self, name: str, **content: Any) -> ModuleType:
        """A module of another version, registered for import."""
        made = ModuleType(name)
        vars(made).update(content)
        self.patch.setitem(sys.modules, name, made)
        return made


def methods(*which: str) -> type:
    """A class with these methods."""
    return type("Other", (), {name: lambda *_args: "done" for name in which})


class Wrapped(SimpleNamespace):
    """A model under DDP."""

    __hash__ = object.__hash__


def _skip_code(world: World) -> None:
    progress.install(world.module("torch._dynamo.eval_frame"))


def _compiled(world: World) -> None:
    data_parallel.install(world.module("torch._dynamo.eval_frame"))


def _fake_store(world: World) -> None:
    world.module("torch.testing._internal.distributed.fake_pg")
    with pytest.raises(EndOfQueryError):
        plan_query._join(print, None, (), {})


def _sync_buffers(world: World) -> None:
    module = world.module("torch.nn.parallel.distributed", DistributedDataParallel=methods())
    progress.install(module)


def _save_checkpoint(world: World) -> None:
    kind = methods("evaluate", "predict", "save_model")
    progress.install(world.module("transformers.trainer", Trainer=kind))
    assert kind().save_model() == "done"


def _inner_loop(world: World) -> None:
    module = world.module("transformers.trainer", Trainer=methods("train"))
    resuming.install(module)


def _loads(world: World, engine: Any) -> None:
    """Loading of the launcher's folder continues as in DeepSpeed."""
    world.patch.setenv(checkpoint.VARIABLE, "0:folder")

    def load(load_dir: str) -> str:
        return load_dir

    assert resuming._load(load, engine, ("folder",), {}) == "folder"


def _engine_config(world: World) -> None:
    _loads(world, SimpleNamespace())


def _load_universal(world: World) -> None:
    _loads(world, SimpleNamespace(_config=SimpleNamespace()))


def _param_dict(_world: World) -> None:
    answers = {
        "bfloat16_enabled": False,
        "fp16_enabled": False,
        "zero_optimization_stage": 2,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
    }
    engine = type("Engine", (), {})()
    for name, value in answers.items():
        setattr(engine, name, lambda value=value: value)
    engine._config, engine.global_steps = SimpleNamespace(), 0
    deepspeed._see_engine(engine)
    assert observations.observed["zero_stage"] == 2


def _fragments(world: World) -> None:
    gradient_places.install(world.module(names.FRAGMENTS.module))


def _loader_iterator(world: World) -> None:
    kind = type("DataLoader", (), {"__iter__": iter})
    loader_passes.install(world.module(names.LOADER_ITERATOR.module, DataLoader=kind))


def _fetcher(world: World) -> None:
    worker_draws.install(world.module(names.FETCHER.module))


def _version(_world: World) -> None:
    """A gradient that doesn't show how often it was changed."""
    part = SimpleNamespace(data_ptr=lambda: 0)
    gradient = SimpleNamespace(detach=lambda: part)
    accumulation.Clipped(list).note([SimpleNamespace(grad=gradient)])


def _transient(world: World) -> None:
    """A module that doesn't show which of its buffers are in no state dict."""
    kind = type("Module", (), {"modules": lambda self: [self], "to_empty": lambda self: self})
    world.patch.setenv(VARIABLE, "trained")
    module = world.module("torch.nn.modules.module", Module=kind)
    emptied.install(module)
    made: Any = kind()
    assert made.to_empty() is made


def _reduction(_world: World) -> None:
    """A torch loss whose graph doesn't show whether it is a mean."""
    made = SimpleNamespace(name=lambda: "NllLossBackward0", next_functions=((None, 0),))
    graphs.Passes().look(SimpleNamespace(grad_fn=made))


def _of_labels(**saved: Any) -> None:
    """A torch loss of labels whose graph doesn't show them, or what they are compared with."""
    made = SimpleNamespace(name=lambda: "NllLossBackward0", next_functions=((object(), 0),))
    vars(made).update(_saved_reduction=1, **saved)
    words = torch.ones(1, 3)
    inputs = losses.Inputs(words, None, words.any(), False, {1: 0})
    with observations.going_on():
        losses._label_facts(SimpleNamespace(grad_fn=made), inputs)


def _target(_world: World) -> None:
    _of_labels()


def _ignored_label(_world: World) -> None:
    _of_labels(_saved_target=torch.ones(3))


def _metadata(_world: World) -> None:
    _of_labels(_saved_target=torch.ones(3), _saved_ignore_index=0)


def _normalized(_world: World) -> None:
    """A softmax whose graph doesn't show its dimension."""
    made = Wrapped(name=lambda: mixing.NORMALIZING[0], next_functions=())
    mixing.Mixing()._note_softmax(SimpleNamespace(grad_fn=made), 0)


def _operand(_world: World) -> None:
    """A matrix product whose graph doesn't show its constants."""
    made = Wrapped(name=lambda: gathers.PRODUCT, next_functions=())
    gathered = gathers.Gathers()
    row = torch.ones(8)
    gathered.noted.append(gathers.Gather(row, rows=8, world=2, is_constant=True, where=""))
    gathered.look(SimpleNamespace(grad_fn=made))


def _factor(_world: World) -> None:
    """A product of a loss and a number whose graph doesn't show the number."""
    joined = Wrapped(name=lambda: gathers.JOINED[0], next_functions=((None, 0),))
    made = Wrapped(name=lambda: gathers.SCALED, next_functions=((joined, 0),))
    gathered = gathers.Gathers()
    row = torch.ones(8)
    gathered.noted.append(gathers.Gather(row, rows=8, world=2, is_constant=True, where=""))
    gathered.look(SimpleNamespace(grad_fn=made))


def _scale(_world: World) -> None:
    """A scaler that keeps its scale elsewhere."""

    class Scaler:
        def get_backoff_factor(self) -> float:
            return 0.5

    dtypes._look(Scaler())


def _divisor(world: World) -> None:
    """A loss divided by the loop whose graph doesn't show the divisor."""

    class Engine:
        def gradient_accumulation_steps(self) -> int:
            return 2

        def backward(self, loss: Any) -> Any:
            return loss

    module = world.module("deepspeed.runtime.engine", DeepSpeedEngine=Engine)
    done_twice.install(module)

    class Loss:
        grad_fn = SimpleNamespace(name=lambda: "DivBackward0")

        def __truediv__(self, other: int) -> Loss:
            return self

    loss, accumulation = Loss(), 2
    loss = loss / accumulation
    assert Engine().backward(loss) is loss


def _attention(_world: World) -> None:
    config = type("Config", (), {"__module__": names.ATTENTION.module})()
    assert model_facts._attention(config) is None
    assert model_facts._attention(object()) is None


def _checkpoint_function(world: World) -> None:
    module = world.module("torch.utils.checkpoint", checkpoint=lambda *args: args)
    checkpointing.install(module)


def _non_reentrant(world: World) -> None:
    name = names.NON_REENTRANT.module
    module = world.module(name, checkpoint=lambda function, *args: function(*args))
    checkpointing.install(module)
    assert module.checkpoint(abs, -1) == 1


def _recomputed_twice(**model: Any) -> None:
    """A second run of a block's parameter in one backward pass, under DDP."""
    parameter = torch.nn.Parameter(torch.ones(1))
    inner = SimpleNamespace(named_parameters=lambda: [("weight", parameter)])
    group = SimpleNamespace(size=lambda: 2)
    alive = Wrapped(module=inner, process_group=group, **model)
    data_parallel.wrapped.add(alive)
    try:
        notes = checkpointing.Recomputations()
        notes.task, notes.parameters = 0, {id(parameter)}
        block = notes.watching(lambda: parameter * 1)
        assert block().item() == 1
    finally:
        data_parallel.wrapped.discard(alive)


def _passes(world: World) -> None:
    """A call within backward pass 0."""
    world.module("torch._C", _current_graph_task_id=lambda: 0)


def _graph_task(world: World) -> None:
    world.module("torch._C")
    _recomputed_twice()


def _syncs(world: World) -> None:
    _passes(world)
    _recomputed_twice()


def _ignored(world: World) -> None:
    _passes(world)
    _recomputed_twice(require_backward_grad_sync=True)


def _engine(world: World) -> None:
    _passes(world)
    world.module("torch.autograd", Variable=object())
    _recomputed_twice(require_backward_grad_sync=True, parameters_to_ignore=())


def _worker_server(world: World) -> None:
    world.module(names.WORKER_SERVER.module)
    with observations.going_on():
        answering._serve(importlib.import_module("torch"), str(world.folder), 0, (2, 13))


def _log_level(world: World) -> None:
    with observations.going_on():
        answering._serve(SimpleNamespace(__path__=["elsewhere"]), str(world.folder), 0, (2, 13))


def _spawned(world: World, **elastic: Any) -> None:
    world.module(
        "torch.distributed.elastic.multiprocessing",
        start_processes=None,
        SignalException=SystemExit,
    )
    world.module(names.LOGS_SPECS.module, **elastic)
    start._spawn(SimpleNamespace(), 0, {}, SimpleNamespace())  # type: ignore[arg-type]


def _logs_specs(world: World) -> None:
    _spawned(world)


def _logs_dest(world: World) -> None:
    _spawned(world, LogsSpecs=object)


def _bound(world: World, **numa: Any) -> None:
    world.module(names.NUMA_OPTIONS.module, **numa)
    options = SimpleNamespace(numa_binding="node")
    start._binding(SimpleNamespace(worker_options=options))  # type: ignore[arg-type]


def _numa_options(world: World) -> None:
    _bound(world, AffinityMode=str)


def _affinity_mode(world: World) -> None:
    _bound(world, NumaOptions=str)


def _actions(world: World) -> None:
    world.patch.setattr(commands, "launch_parser", lambda: SimpleNamespace(description=""))
    with pytest.raises(MissingNameError):
        commands.man_page()
    inner_launch.as_arguments(object(), argparse.Namespace())  # type: ignore[arg-type]


def _option_actions(world: World) -> None:
    world.patch.setattr(parser, "parser", object)
    assert parser.by_files(world.folder, {"SAFE_LAUNCH_CONFIG": ""}) == []
    (world.folder / "pyproject.toml").write_text("[tool.safe-launch]\nnproc = 2\n")
    parser.by_files(world.folder, {"SAFE_LAUNCH_CONFIG": ""})


def _validate_launch(world: World) -> None:
    package = world.folder / "accelerate" / "commands"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "launch.py").write_text("launch_command_parser = None\n")
    world.patch.setenv("PYTHONPATH", str(world.folder))
    accelerate._by_accelerate(world.folder / "config.yaml")


def _fsdp_begins(_world: World) -> None:
    states = ModuleType(names.FSDP_BEGINS.module)
    states.FSDPState = type("FSDPState", (), {})  # type: ignore[attr-defined]
    fsdp.install(states)


def _initial_state(world: World) -> None:
    optimizer.install(world.module(names.INITIAL_STATE.module))


def _from_config(world: World) -> None:
    model = type("PreTrainedModel", (), {"from_pretrained": classmethod(lambda _kind: None)})
    loading.install(world.module(loading.HOOKED[0], PreTrainedModel=model))


SITUATIONS: dict[PrivateName, Callable[[World], None]] = {
    names.LOGS_SPECS: _logs_specs,
    names.LOGS_DEST: _logs_dest,
    names.NUMA_OPTIONS: _numa_options,
    names.AFFINITY_MODE: _affinity_mode,
    names.WORKER_SERVER: _worker_server,
    names.LOG_LEVEL: _log_level,
    names.GRAPH_TASK: _graph_task,
    names.ENGINE: _engine,
    names.SKIP_CODE: _skip_code,
    names.COMPILED: _compiled,
    names.SYNCS: _syncs,
    names.IGNORED: _ignored,
    names.SYNC_BUFFERS: _sync_buffers,
    names.FSDP_BEGINS: _fsdp_begins,
    names.INITIAL_STATE: _initial_state,
    names.DIVISOR: _divisor,
    names.REDUCTION: _reduction,
    names.TARGET: _target,
    names.IGNORED_LABEL: _ignored_label,
    names.METADATA: _metadata,
    names.NORMALIZED: _normalized,
    names.OPERAND: _operand,
    names.FACTOR: _factor,
    names.VERSION: _version,
    names.TRANSIENT: _transient,
    names.SCALE: _scale,
    names.LOADER_ITERATOR: _loader_iterator,
    names.FETCHER: _fetcher,
    names.FAKE_STORE: _fake_store,
    names.CHECKPOINT_FUNCTION: _checkpoint_function,
    names.PARAM_DICT: _param_dict,
    names.ENGINE_CONFIG: _engine_config,
    names.LOAD_UNIVERSAL: _load_universal,
    names.FRAGMENTS: _fragments,
    names.NON_REENTRANT: _non_reentrant,
    names.INNER_LOOP: _inner_loop,
    names.SAVE_CHECKPOINT: _save_checkpoint,
    names.ATTENTION: _attention,
    names.FROM_CONFIG: _from_config,
    names.VALIDATE_LAUNCH: _validate_launch,
    names.ACTIONS: _actions,
    names.OPTION_ACTIONS: _option_actions,
}
"""The use of a name in a version without it: it is reported, or raised to the launcher."""
ENDS = {
    *(names.LOGS_SPECS, names.LOGS_DEST, names.NUMA_OPTIONS, names.AFFINITY_MODE),
    *(names.VALIDATE_LAUNCH, names.ACTIONS, names.OPTION_ACTIONS),
}
"""Names without which the launcher prints the sentence and ends."""


def test_each_has_a_situation() -> None:
    """Every registered name has a case for its absence; one name is never missed."""
    assert {*NAMES} - {names.DEFAULT_DEVICE} == SITUATIONS.keys()


@table("name", SITUATIONS, name=lambda name: name.path)
def test_a_missing_name_is_told_in_a_line(
    name: PrivateName, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers raise nothing; launcher errors end with one line."""
    world = World(monkeypatch, tmp_path)
    told: list[Message] = []
    observations.report_to(told.append)
    if name in ENDS:
        with pytest.raises(MissingNameError) as raised:
            SITUATIONS[name](world)
        said = [raised.value.problem]
    else:
        SITUATIONS[name](world)
        said = [message.sentence for message in told if isinstance(message, Remark)]
    assert said == [name.sentence]
    assert "\n" not in name.sentence


def test_the_default_device_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the module's variable, torch's getter is called."""
    getters = {"get_default_dtype": lambda: "float32", "get_default_device": lambda: "meta"}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**getters))
    monkeypatch.setitem(sys.modules, names.DEFAULT_DEVICE.module, ModuleType("other"))
    assert extra_imports.torch_defaults() == "float32 meta"


def test_a_guard_that_finds_nothing_leaves_the_training_alone() -> None:
    """Other parts of the framework may be missing as well."""
    new_worker.begin()
    told: list[Message] = []
    install._install(resuming, ModuleType("deepspeed.runtime.engine"))
    observations.report_to(told.append)  # after the fork: earlier missing names are reported now
    (one,) = told
    assert isinstance(one, Remark)
    assert "DeepSpeedEngine" in one.sentence
    assert one.sentence.endswith(": its observations and changes (resuming) are skipped")
