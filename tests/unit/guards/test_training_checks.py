"""The checks in trainings of one process: faults and similar healthy trainings."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check, Finding
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message, Skipped
from safe_launch.guards.checks import emptied as guard_of_emptied
from safe_launch.guards.checks import (
    graphs,
    loaded_parts,
    losses,
    saves,
    schedules,
    texts,
)
from safe_launch.guards.checks.accumulation import Clearing
from safe_launch.guards.checks.batches import Draws, Labels, _has_own_loss
from safe_launch.guards.checks.copies import Copy
from safe_launch.guards.checks.optimizers import Watch
from support.lazy import Lazy

torch = Lazy("torch")

Told = Callable[[], list[Finding]]


@pytest.fixture(name="told")
def findings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """The checks' notes and findings; skipped checks don't count."""
    messages: list[Message] = []
    observations.report_to(messages.append)
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    monkeypatch.setattr(saves, "_begun", {})

    def told() -> list[Finding]:
        assert not [each for each in messages if isinstance(each, Skipped)]
        return [each.finding for each in messages if isinstance(each, Found)]

    yield told
    schedules.schedules.optimizers.clear()


def net(kind: Any = None) -> Any:
    """A small model with an embedding."""
    torch.manual_seed(0)
    parts = torch.nn.Embedding(30, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(*parts).to(kind)


def watched(optimizer: Any) -> Any:
    """An optimizer watched as in a worker."""
    Watch(optimizer)
    return optimizer


def train(model: Any, *others: Any, steps: int = 12, before: Callable[[int], None] = id) -> None:
    """Steps with all these optimizers, as in a plain loop."""
    for step in range(steps):
        before(step)
        loss = model(torch.arange(30)).float().pow(2).mean()
        loss.backward()
        for optimizer in others:
            optimizer.step()
            optimizer.zero_grad()


def test_a_healthy_training(told: Told) -> None:
    """Frozen parts, different rates, sparse gradients and a closure are fine."""
    model = net()
    model[0].requires_grad_(False)
    observations.see_model(model)
    train(model, watched(torch.optim.AdamW(model.parameters(), lr=1e-3)))
    model = net()
    groups = [{"params": model[1].parameters(), "lr": 1e-4}, {"params": model[2].parameters()}]
    train(model, watched(torch.optim.AdamW(groups, lr=1e-2)))
    sparse = torch.nn.Embedding(30, 16, sparse=True)
    train(sparse, watched(torch.optim.SparseAdam(sparse.parameters())))
    closed = torch.nn.Linear(4, 4)
    lbfgs = watched(torch.optim.LBFGS(closed.parameters()))

    def closure() -> Any:
        lbfgs.zero_grad()
        loss = closed(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(4):
        lbfgs.step(closure)
        lbfgs.zero_grad()
    assert told() == []


def test_two_models_with_an_optimizer_each(told: Told) -> None:
    """A generator and its critic may step at different frequencies."""
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    observations.see_model(one)
    observations.see_model(other)
    first = watched(torch.optim.Adam(one.parameters()))
    second = watched(torch.optim.Adam(other.parameters()))
    for step in range(12):
        other(one(torch.ones(2, 4))).mean().backward()
        second.step()
        second.zero_grad()
        if step % 3 == 2:
            first.step()
            first.zero_grad()
    assert told() == []


def test_an_optimizer_made_too_early(told: Told) -> None:
    """A layer was replaced; a fully replaced model isn't trained at all."""
    model = net()
    optimizer = watched(torch.optim.AdamW(model.parameters(), lr=1e-3))
    model[2] = torch.nn.Linear(16, 4)
    observations.see_model(model)
    train(model, optimizer)
    (found,) = told()
    assert (found.check, found.certain, found.parameter) == (Check.TRAINED, True, "2.weight")
    assert "test_training_checks.py:" in found.where


def test_an_optimizer_of_another_model(told: Told) -> None:
    """The optimizer holds an earlier copy's parameters."""
    optimizer = watched(torch.optim.AdamW(net().parameters(), lr=1e-3))
    model = net()
    observations.see_model(model)
    train(model, optimizer)
    (found,) = told()
    assert "trains nothing" in found.sentence
    assert "none of them is the model's any more" in found.sentence


def test_updates_below_the_grain(told: Told) -> None:
    """bfloat16 at a small rate; a rising rate and float32 are fine."""
    half = torch.bfloat16
    for kind, rate in ((None, 1e-6), (half, 1e-1)):
        model = net(kind)
        train(model, watched(torch.optim.AdamW(model.parameters(), lr=rate)))
    model = net(half)
    optimizer = watched(torch.optim.AdamW(model.parameters(), lr=0.0))

    def warm_up(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 1e-7 * step

    train(model, optimizer, steps=10, before=warm_up)
    assert told() == []
    model = net(half)
    train(model, watched(torch.optim.AdamW(model.parameters(), lr=1e-7)))
    (found,) = told()
    assert found.step == 2
    assert "updates are lost" in found.sentence


def test_weights_of_float16(told: Told) -> None:
    """Adam updates them directly."""
    model = net(torch.float16)
    train(model, watched(torch.optim.AdamW(model.parameters(), lr=1e-3)), steps=2)
    (found,) = told()
    assert (found.check, found.step) == (Check.PRECISION, 1)


def test_frozen_with_a_gradient_left(told: Told) -> None:
    """A gradient of zero instead of None: momentum and decay move the weights."""
    model = net()
    optimizer = watched(torch.optim.AdamW(model.parameters(), lr=1e-2))
    observations.see_model(model)
    for step in range(6):
        if step == 2:
            model[1].requires_grad_(False)
        model(torch.arange(30)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    (found,) = told()
    assert found.parameter == "1.weight"
    assert "frozen" in found.sentence


def test_adapters_that_stay_zero(told: Told) -> None:
    """The optimizer holds other adapters; without a gradient there is no finding."""

    class Adapted(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.base = net()
            self.lora_B = torch.nn.Linear(4, 4, bias=False)
            torch.nn.init.zeros_(self.lora_B.weight)

        def forward(self, ids: Any) -> Any:
            found = self.base(ids)
            return found + self.lora_B(found)

    healthy = Adapted()
    observations.see_model(healthy)
    train(healthy, watched(torch.optim.AdamW(healthy.parameters())))
    assert told() == []
    del healthy
    model = Adapted()
    observations.see_model(model)
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = watched(torch.optim.AdamW(masters))
    for _ in range(4):  # like an engine that never writes its masters back
        model(torch.arange(30)).pow(2).mean().backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad, parameter.grad = parameter.grad, None
        optimizer.step()
    assert any("still zero" in found.sentence for found in told())


def test_a_schedule_that_steps_with_micro_batches(told: Told) -> None:
    """One that steps with the optimizer is fine."""
    counter = schedules.schedules
    for every in (2, 1):
        model = net()
        optimizer = watched(torch.optim.SGD(model.parameters(), lr=1e-3))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        counter.places[schedule] = "train.py:9"
        for micro in range(20):
            model(torch.arange(30)).pow(2).mean().backward()
            counter.passes += 1
            if micro % 2:
                optimizer.step()
            if micro % 2 or (every == 1 and micro):
                schedule.step()
        found = [each.where for each in told() if each.check is Check.SCHEDULE]
        assert found == (["train.py:9"] if every == 1 else [])


def test_tied_weights_that_were_parted(told: Told) -> None:
    """The output layer is a copy of the embedding; tied or different ones are fine."""

    class Tied(torch.nn.Module):  # type: ignore[name-defined, misc]
        config = SimpleNamespace(tie_word_embeddings=True)

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(30, 16), torch.nn.Linear(16, 30)
            weight = self.embedding.weight
            copy = torch.nn.Parameter(weight.detach().clone())
            self.head.weight = {"tied": weight, "parted": copy}.get(kind, self.head.weight)

        def get_output_embeddings(self) -> Any:
            return self.head

        def get_input_embeddings(self) -> Any:
            return self.embedding

        def forward(self, ids: Any) -> Any:
            return self.head(self.embedding(ids))

    for kind, count in (("tied", 0), ("different", 0), ("parted", 1)):
        model = Tied(kind)
        observations.see_model(model)
        train(model, watched(torch.optim.AdamW(model.parameters())), steps=3)
        assert len(told()) == count, kind


def test_tied_weights_that_to_empty_parts(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are tied again, or that stay one, are fine."""
    monkeypatch.setattr(torch.nn.Module, "to_empty", torch.nn.Module.to_empty)
    monkeypatch.setattr(guard_of_emptied, "_parted", [])
    module = ModuleType(guard_of_emptied.HOOKED[0])
    module.Module = torch.nn.Module  # type: ignore[attr-defined]
    guard_of_emptied.install(module)

    def emptied(device: str, *, ties_again: bool) -> None:
        with torch.device(device):
            model = torch.nn.Sequential(torch.nn.Embedding(30, 16), torch.nn.Linear(16, 30))
        model[1].weight = model[0].weight
        model.to_empty(device="cpu")
        if ties_again:
            model[1].weight = model[0].weight
        for each in model.parameters():
            torch.nn.init.normal_(each)
        train(model, watched(torch.optim.SGD(model.parameters())), steps=2)

    emptied("meta", ties_again=True)
    emptied("cpu", ties_again=False)
    assert told() == []
    emptied("meta", ties_again=False)
    (found,) = told()
    assert "two parameters of 0.weight and 1.weight" in found.sentence


def test_states_that_stay_in_the_checkpoint(told: Told) -> None:
    """Nothing is missing if the states are there, or the checkpoint has none."""

    def loaded(state: dict[str, Any], *keys: str) -> None:
        given = {"app": {"optim": {"state": state, "param_groups": []}, "model": {}}}
        metadata = SimpleNamespace(state_dict_metadata=dict.fromkeys(keys))
        loaded_parts._planning(None, (given, metadata), {})

    loaded({"0": {}}, "app.optim.state.0.step")
    loaded({}, "app.optim.param_groups", "app.model.state.weight")
    assert told() == []
    loaded({}, "app.optim.state.0.step", "app.optim.state.0.exp_avg")
    (found,) = told()
    assert "app.optim.state has none, though the checkpoint has 2 values" in found.sentence


def test_a_stream_that_each_process_reads(told: Told) -> None:
    """Streams of one process, divided ones, and data sets with indices are fine."""

    class Iterator:
        """An iterator of a loader."""

    def drawn(data: Any, workers: int, *batches: int) -> None:
        draws = Draws()
        loader = SimpleNamespace(dataset=data, num_workers=workers)
        iterator = Iterator()
        draws.begun(loader, iterator)
        for number in batches:
            draws.draw(iterator, torch.arange(number, number + 4))

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined, misc]
        """A stream."""

        def __iter__(self) -> Any:
            return iter(())

    drawn(Stream(), 0, 0, 0, 4, 4)
    drawn(Stream(), 2, 0, 4, 8, 12)
    drawn([], 2, 0, 0, 4, 4)
    assert told() == []
    drawn(Stream(), 3, 0, 0, 0, 4, 4, 4)
    (found,) = told()
    assert "each of a loader's 3 worker processes reads the whole stream" in found.sentence


def test_labels(told: Told) -> None:
    """All are ignored in three batches; a single counted one is enough."""
    for last in (1, -100):
        labels = Labels()
        for label in (-100, -100, last):
            labels.look({"labels": torch.full((2, 3), label)})
        assert not labels.is_open
        assert len(told()) == (last < 0)


def test_checks_that_are_off(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disabled checks report no findings."""
    monkeypatch.setenv(VARIABLE, "")
    model = net(torch.float16)
    train(model, watched(torch.optim.AdamW(model.parameters(), lr=1e-3)))
    assert told() == []


def test_no_event_is_asked_while_a_graph_is_captured() -> None:
    """`cudaEventQuery` would end the capture with an error."""
    is_captured = True

    class Event:
        def query(self) -> bool:
            assert not is_captured
            return True

    module = SimpleNamespace(is_current_stream_capturing=lambda: is_captured)
    copy = Copy(None, Event(), (), module)
    assert not copy.is_there
    is_captured = False
    assert copy.is_there


def test_gradients_that_are_all_zero(told: Told) -> None:
    """They are zero in step after step; a single other one is enough."""
    for clears in (lambda step: step != 4, lambda _step: True):
        assert told() == []
        model = net()
        optimizer = watched(torch.optim.SGD(model.parameters(), lr=0.1))
        for step in range(12):
            model(torch.arange(30)).pow(2).mean().backward()
            if clears(step):
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
            optimizer.zero_grad()
    (found,) = told()
    assert (found.step, found.certain) == (10, True)
    assert "are zero, step after step" in found.sentence


def test_evaluation_mode(told: Told) -> None:
    """Found if left on with dropout; not without dropout, elsewhere, or for one step."""
    plain, other, model = net(), net(), net()
    for each in (other, model):
        each.append(torch.nn.Dropout(0.1))
    for each in (plain, other, model):
        observations.see_model(each)
    plain.eval()
    other.eval()
    train(plain, watched(torch.optim.SGD(plain.parameters(), lr=0.1)))
    optimizer = watched(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, optimizer, steps=4, before=lambda step: model.train(step != 1))
    assert told() == []
    train(model, optimizer, steps=4, before=lambda step: model.train(step < 1))
    (found,) = told()
    assert (found.certain, found.step) == (False, 7)


def test_an_optimizer_that_never_steps(told: Told) -> None:
    """Only parameters that no other optimizer holds count."""
    model = net()
    observations.see_model(model)
    first = watched(torch.optim.SGD(model[0].parameters(), lr=0.1))
    same = watched(torch.optim.SGD(model[0].parameters(), lr=0.1))
    train(model[0], first)
    assert told() == []
    idle = watched(torch.optim.SGD(model[1:].parameters(), lr=0.1))
    train(model, same)
    assert any("has made no step by the 10th" in found.sentence for found in told())
    assert idle.param_groups


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedules_of_nobody_and_of_nothing(told: Told) -> None:
    """Its optimizer never steps, or its factor is always 0."""
    counter = schedules.schedules
    model = net()
    parameters = list(model.parameters())
    idle, used = (watched(torch.optim.SGD(parameters, lr=0.1)) for _ in range(2))
    schedule = torch.optim.lr_scheduler.StepLR(idle, 2)
    counter.places[schedule] = "train.py:9"
    train(model, used, before=lambda _step: schedule.step())
    (found,) = told()
    assert (found.check, found.where) == (Check.SCHEDULE, "train.py:9")
    still = watched(torch.optim.SGD(parameters, lr=0.1))
    counter.places[torch.optim.lr_scheduler.LambdaLR(still, lambda _step: 0)] = "train.py:10"
    train(model, still)
    assert "has been 0 in all 10 steps" in told()[-1].sentence
    falling = watched(torch.optim.SGD(parameters, lr=0.1))
    schedule = torch.optim.lr_scheduler.LambdaLR(falling, lambda step: step < 3)
    counter.places[schedule] = "train.py:11"
    train(model, falling, before=lambda _step: schedule.step())
    assert "has fallen to 0, but the training continues" in told()[-1].sentence
    assert told()[-1].where == "train.py:11"


def test_passes_of_means(told: Told) -> None:
    """Means are added up; a divided mean, a single pass and a sum are fine."""
    done = 0
    observations.count_steps(lambda: done)
    for kind, count, says in (("mean", 1, 0), ("half", 2, 0), ("sum", 2, 0), ("mean", 2, 1)):
        done, first = 0, graphs.Passes()
        for number in range(4 * count):
            done = number // count
            output = net()(torch.arange(30)).pow(2)
            loss = output.sum() if kind == "sum" else output.mean()
            if first.is_open:
                first.look(loss / 2 if kind == "half" else loss)
        assert len(told()) == says, (kind, count)


def _begun(optimizer: Any) -> Any:
    """The same with a schedule's initial rates."""
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


@pytest.mark.filterwarnings("ignore:Detected call of", "ignore:To get the last learning rate")
def test_schedules_that_do_not_fit(told: Told) -> None:
    """At the end, in a Trainer, after a cosine's half period, and at a rate of 0."""
    counter = schedules.schedules
    rates = torch.optim.lr_scheduler

    def trained(make: Callable[[Any], Any], where: str, passes: int = 1, steps: int = 12) -> Any:
        optimizer = watched(torch.optim.SGD(net().parameters(), lr=0.1))
        schedule = make(optimizer)
        counter.places[schedule] = where
        counter.made(schedule)
        for _ in range(steps):
            counter.passes += passes
            optimizer.step()
            schedule.step()
        return schedule

    def polynomial(total: int) -> Callable[[Any], Any]:
        return lambda optimizer: rates.PolynomialLR(optimizer, total_iters=total)

    trained(polynomial(12), "right", passes=2)
    trained(polynomial(30), "ended early", passes=2)
    trained(lambda optimizer: rates.CosineAnnealingLR(optimizer, 12), "right")
    trained(lambda optimizer: rates.LinearLR(optimizer, total_iters=3), "a warmup")
    trained(lambda optimizer: rates.ConstantLR(optimizer, total_iters=24), "constant", passes=2)
    resumed = functools.partial(rates.PolynomialLR, total_iters=24, last_epoch=11)
    trained(lambda optimizer: resumed(_begun(optimizer)), "resumed", passes=2)
    own = trained(polynomial(24), "the Trainer's", passes=2)
    counter.of_trainer(own, None)
    del own
    assert not [each for each in told() if each.check is Check.SCHEDULE]
    trained(polynomial(24), "too long", passes=2)
    given = trained(polynomial(24), "given", passes=2)
    counter.of_trainer(given, 12)
    del given
    trained(lambda optimizer: rates.CosineAnnealingLR(optimizer, 4), "rising")
    trained(lambda optimizer: rates.LambdaLR(optimizer, lambda step: step < 3), "stopped")
    found = [(each.where, each.certain) for each in told() if each.check is Check.SCHEDULE]
    places = "too long", "given", "rising", "stopped"
    assert found == [(place, False) for place in places]


@pytest.mark.parametrize(
    ("total", "named", "batches", "says"),
    [
        (80, {"num_epochs": 2}, 40, "2 times the 40 planned: its total counts batches"),
        (40, {"num_epochs": 2}, 40, ""),
        (80, {"num_epochs": 2, "max_epochs": 4}, 40, ""),  # either may be meant
        (80, {"epoch": 2}, 40, ""),
        (80, {"num_epochs": 2}, 0, ""),  # a stream
    ],
)
def test_schedules_that_will_not_fit(
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    total: int,
    named: dict[str, int],
    batches: int,
    says: str,
) -> None:
    """A total of batches is known by the script's number of epochs, before the third step."""
    counter = schedules.schedules
    monkeypatch.setattr(schedules.schedules, "batches", batches)
    optimizer = watched(torch.optim.SGD(net().parameters(), lr=0.1))
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=total)
    counter.places[schedule] = "train.py:3"
    counter.made(schedule)
    for _ in range(3):
        counter.passes += 2
        optimizer.step()
        schedule.step()
    found = [each for each in told() if each.check is Check.SCHEDULE]
    assert [(each.step, each.where) for each in found] == [(3, "train.py:3")] * bool(says)
    assert all(says in each.sentence for each in found), named
    counter.totals.pop(schedule)


def test_gradients_that_are_cleared_too_early(told: Told) -> None:
    """Before each pass; fine with one pass a step or changing weights."""

    def looked(before: Callable[[Any, Any], object], passes: int = 2) -> None:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = Watch(optimizer)
        clearing = Clearing(lambda: [(optimizer, watch)])
        for _ in range(4):
            for _ in range(passes):
                before(optimizer, model)
                loss = model(torch.arange(30)).pow(2).mean()
                if clearing.is_open:
                    clearing.look()
                loss.backward()
                clearing.after()
            optimizer.step()
            optimizer.zero_grad()
        assert not clearing.is_open

    def moved(optimizer: Any, model: Any) -> None:
        """Changes the weights between passes, as SAM does."""
        optimizer.zero_grad()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)

    looked(lambda _optimizer, _model: None)
    looked(lambda optimizer, _model: optimizer.zero_grad(), passes=1)
    looked(moved)
    assert told() == []
    looked(lambda optimizer, _model: optimizer.zero_grad())
    (found,) = told()
    assert "the last of 2 backward passes" in found.sentence


def test_outputs_that_are_normalized_twice(told: Told) -> None:
    """By the model and the loss; attention in the model doesn't count."""
    functional = torch.nn.functional
    labels = torch.zeros(30, dtype=torch.long)

    def attending(output: Any) -> Any:
        return torch.softmax(output @ output.T, -1) @ output

    def judged(output: Any) -> Any:
        losses.Losses().look(functional.cross_entropy(output, labels) / 2)

    judged(net()(torch.arange(30)))
    judged(attending(net()(torch.arange(30))))
    judged(net()(torch.arange(30)).log_softmax(-1))
    assert told() == []
    judged(net()(torch.arange(30)).softmax(-1))
    probable = torch.sigmoid(net()(torch.arange(30)))
    loss = functional.binary_cross_entropy_with_logits(probable, torch.ones_like(probable))
    losses.Losses().look(loss)
    assert [each.sentence.partition(" takes")[0] for each in told()] == [
        *("cross_entropy", "binary_cross_entropy_with_logits")
    ]


def test_groups_without_decay(told: Told) -> None:
    """An empty group while biases decay; no biases and filled groups are fine."""
    for biased, spares in ((True, True), (False, False), (True, False)):
        assert told() == []
        model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=biased) for _ in range(2)))
        observations.see_model(model)
        spared = [p for name, p in model.named_parameters() if spares and "bias" in name]
        rest = [p for p in model.parameters() if all(p is not other for other in spared)]
        groups = [{"params": rest}, {"params": spared, "weight_decay": 0.0}]
        optimizer = watched(torch.optim.AdamW(groups))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        del model
    (found,) = told()
    assert "group 1, without weight decay, is empty" in found.sentence


def test_questions_about_texts() -> None:
    """A decoder's batch: shifted labels, ignored ends, and added tokens."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 20}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": 9}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    ids = torch.tensor([[1, 2, 3, 9, 9], [4, 5, 6, 7, 9]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    right = ids.masked_fill(mask == 0, -100)
    batch = {"input_ids": ids, "attention_mask": mask}

    def asked(labels: Any, **others: Any) -> list[bool]:
        return [bool(each) for each in texts.text_faults(batch | others, labels, model)]

    assert asked(right) == [False] * 5
    assert asked(torch.cat((right[:, 1:], right[:, :1] * 0 - 100), 1)) == [True, *[False] * 4]
    assert asked(ids.masked_fill(ids == 9, -100)) == [False, True, False, False, False]
    assert asked(ids.masked_fill(ids == 9, -100), attention_mask=None) == [False] * 5
    packed = torch.tensor([[0, 1, 2, 3, 0], [0, 1, 0, 1, 2]])
    assert asked(right, position_ids=packed) == [*[False] * 4, True]
    assert asked(right, position_ids=packed, attention_mask=None) == [False] * 5
    padded = torch.tensor([[0, 1, 2, 3, 0], [0, 1, 2, 3, 4]])
    assert asked(right, position_ids=padded) == [False] * 5
    assert asked(right[:, :-1]) == []
    assert list(texts.text_faults(batch, right, net())) == []
    small = {"d_model": 8, "vocab_size": 20, "decoder_layers": 1, "decoder_ffn_dim": 8}
    unshifted = transformers.BartConfig(**small, decoder_attention_heads=2, encoder_layers=1)
    model = transformers.BartForCausalLM(unshifted)
    assert asked(right) == []
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20, "eos_token_id": 9}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    assert asked(ids.masked_fill(ids == 9, -100)) == [False, True, False, False, False]


def test_texts_that_are_cut() -> None:
    """The longest are equally long without an end; other lengths, ends and data sets aren't."""
    transformers = pytest.importorskip("transformers")
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20, "eos_token_id": 9}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))

    class Table(list[list[int]]):
        column_names: list[str]

        def __getitem__(self, place: Any) -> Any:
            return {"input_ids": list.__getitem__(self, place)}

        def select_columns(self, _names: Any) -> Table:
            return self

        with_format = select_columns

    def found(*rows: list[int]) -> str:
        table = Table(rows)
        table.column_names = ["input_ids"]
        fault = texts.cut_texts(table, model)
        return "" if fault is None else fault.sentence

    short = [[1, 9], [1, 2, 9], [3, 9], [3, 4, 9]]
    cut = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert found(*short, *cut).startswith("2 of the first 6 texts are cut at 4 tokens")
    assert not found(*short, *cut[:1])
    assert not found(*short, *([*text[:3], 9] for text in cut))
    assert not found(*([1, 2], [3, 4, 5], [6], [7, 8, 1]), *cut)
    assert not found(*short[:1], *cut)
    assert texts.cut_texts([*short, *cut], model) is None


def test_texts_that_begin_twice() -> None:
    """Behind padding as well; repeated tokens and a token that is the end too prove nothing."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 20}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}

    def found(rows: list[list[int]], end: Any = 2, **given: Any) -> bool:
        config = transformers.LlamaConfig(**sizes, **heads, bos_token_id=1, eos_token_id=end)
        ids = torch.tensor(rows)
        batch = {"input_ids": ids, **given}
        return bool([*texts.text_faults(batch, ids, transformers.LlamaForCausalLM(config))][3])

    twice = [[1, 1, 5, 6], [1, 1, 7, 8]]
    assert found(twice)
    padded = [[0, 1, 1, 5], [0, 0, 1, 1], [1, 1, 6, 7]]
    assert not found(padded)
    assert found(padded, attention_mask=torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1], [1] * 4]))
    assert not found([[1, 5, 6, 7], [1, 1, 7, 8]])
    assert not found([[1, 1, 1, 1]])
    assert not found(twice, end=[1, 2])


def test_labels_of_padding() -> None:
    """Two or more at an end count; a text's end, holes, and other losses don't."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 20}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    labels = torch.tensor([[3, 4, 5, 6, 9, 9], [3, 4, 5, 6, 7, 8]])

    def found(mask: Any, labels: Any = labels, model: Any = model) -> bool:
        return bool(texts.trained_padding({"attention_mask": mask}, labels, model))

    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    assert found(mask)
    assert found(mask.flip(1))
    assert not found(mask, labels.masked_fill(mask == 0, -100))
    assert not found(torch.tensor([[1, 1, 1, 1, 1, 0], [1] * 6]))
    assert not found(torch.tensor([[1, 0, 1, 0, 1, 0], [1] * 6]))
    assert not found(None)
    assert not found(mask, model=net())
    assert not found(mask, model=None)
    small = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**small, pad_token_id=9))
    assert found(mask, model=model)
    assert not found(mask, labels.masked_fill(labels == 9, -100), model)
    assert not found(mask, labels[:, :5], model)


def test_losses_of_trainers() -> None:
    """One that replaces the model's loss may ignore padding; one that extends it doesn't."""

    def trainer(kind: type, **held: Any) -> Any:
        return type("Mine", (kind,), held)()

    transformers = pytest.importorskip("transformers.trainer")
    plain = type("Plain", (), {"compute_loss": transformers.Trainer.compute_loss})
    extended = type("Extended", (plain,), {"compute_loss": _extends})
    replaced = type("Replaced", (plain,), {"compute_loss": lambda *_: 0})
    assert [_has_own_loss(trainer(kind)) for kind in (plain, extended, replaced)] == [
        *(False, False, True)
    ]
    assert _has_own_loss(trainer(plain, compute_loss_func=len))


def _extends(self: Any, *args: Any) -> Any:
    return super(type(self), self).compute_loss(*args)


def test_a_state_dict_that_is_kept(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refers to the weights is reported when used after a step; a copy isn't."""
    model = net()
    observations.see_model(model)
    saves.note(states := model.state_dict())
    saves.look_at_states({"model": states}, is_loaded=False)
    assert told() == []
    monkeypatch.setattr(observations, "step", lambda: 5)
    saves.note(again := model.state_dict())
    monkeypatch.setattr(observations, "step", lambda: 9)
    saves.look_at_states(copy.deepcopy(again), is_loaded=True)
    saves.look_at_states(model.state_dict(), is_loaded=True)
    saves.look_at_states({name: each.clone() for name, each in again.items()}, is_loaded=True)
    assert told() == []
    saves.look_at_states({"epoch": 1, "model": again}, is_loaded=False)
    (found,) = told()
    assert "after step 5" in found.sentence
    del states, again, found
