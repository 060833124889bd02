"""What a loss's graph shows: its labels beside the inputs, its factor, its shapes."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import discarded, graphs, losses, schedule_lengths
from safe_launch.guards.divided_data import digest_of_all
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")


def facts(logits: Any, labels: Any, ids: Any, mask: Any = None, **more: Any) -> list[bool]:
    """The facts of a cross entropy, as (padding, unshifted, shifted twice)."""
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), **more)
    inputs = losses.Inputs(ids, mask, (ids != ids).any(), True, {9: 0} if mask is None else {})
    found = losses._label_facts(loss, inputs)
    assert found is not None
    return [bool(fact) for fact in found]


def test_labels_beside_inputs() -> None:
    """They are those of the same place, the next, or the one after it."""
    ids = torch.tensor([[1, 2, 3, 4, 5], [5, 3, 8, 1, 2]])
    logits = torch.randn(2, 5, 9, requires_grad=True)
    assert facts(logits, ids, ids) == [False, True, False]
    assert facts(logits[:, :-1], ids[:, 1:], ids) == [False, False, False]
    assert facts(logits[:, :-1], ids[:, 1:], ids[:, :-1]) == [False, False, False]
    assert facts(logits[:, :-2], ids[:, 2:], ids[:, :-1]) == [False, False, True]
    masked = torch.where(ids == 3, 7, ids)  # as for a masked model
    labels = torch.where(ids == 3, 3, -100)
    assert facts(logits, labels, masked) == [False, False, False]


def test_padding_beside_labels() -> None:
    """By the mask, or by the token of an embedding for padding."""
    ids = torch.tensor([[1, 2, 3, 4, 5], [5, 3, 0, 0, 0]])
    logits = torch.randn(2, 5, 9, requires_grad=True)
    shifted = logits[:, :-1], ids[:, 1:], ids
    mask = (ids != 0).long()
    assert facts(*shifted, mask) == [True, False, False]
    assert facts(*shifted, mask, ignore_index=0) == [False, False, False]
    assert facts(*shifted) == [True, False, False]
    assert facts(*shifted, ignore_index=0) == [False, False, False]
    end = torch.tensor([[1, 2, 3, 4, 0], [5, 3, 8, 7, 0]])  # padding's token ends the texts
    assert facts(logits[:, :-1], end[:, 1:], end) == [False, False, False]


@table(
    ("made", "shapes"),
    [
        (lambda x, y: ((x - y) ** 2).mean(), ((4, 1), (4, 4))),
        (lambda x, y: (y - x).abs().mean(), ((4, 1), (4, 4))),
        (lambda x, y: 2 * torch.nn.functional.mse_loss(x, y.expand(4, 4)), ((4, 1), (4, 4))),
        (lambda x, y: ((x[:, 0] - y) ** 2).mean(), None),
        (lambda x, y: ((x - y[:, None]) ** 2).mean(), None),
        (lambda x, _: (x - x.T).abs().mean(), None),  # all pairs
        (lambda x, _: x.mean(), None),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_shapes_that_are_broadcast(made: Any, shapes: object) -> None:
    """An output of a column, and targets of a row, make a matrix."""
    x, y = torch.randn(4, 1, requires_grad=True) * 1, torch.randn(4)
    assert graphs.broadcast(made(x, y)) == shapes


@table(
    ("scaled", "factor"),
    [
        (lambda loss: loss * 2, 2.0),
        (lambda loss: 4 * loss / 2, 2.0),
        (lambda loss: loss, 1.0),
        (lambda loss: loss * torch.ones(1, requires_grad=True).sum(), 0.0),
        (lambda loss: loss + 1, 0.0),
        (lambda loss: loss.exp(), 0.0),
    ],
)
def test_factors_of_a_mean(scaled: Any, factor: float) -> None:
    """Numbers that multiply or divide it."""
    x = torch.randn(3, requires_grad=True)
    assert graphs.factor_of_mean(scaled((x * x).mean())) == factor


@table(
    ("made", "is_sum"),
    [
        (lambda each, _: each("sum"), True),
        (lambda each, _: 2 * each("sum"), True),
        (lambda each, _: each("none").sum(), True),
        (lambda each, mask: (each("none") * mask).sum(), True),
        (lambda each, mask: (each("none") * mask).sum() / mask.sum(), False),
        (lambda each, _: each("sum") / 3, False),
        (lambda each, _: 0.1 * each("sum"), False),
        (lambda each, _: each("mean"), False),
        (lambda each, _: each("none").mean(), False),
    ],
)
def test_sums_of_labels(made: Any, is_sum: bool) -> None:
    """Nothing divides them, nor makes them smaller."""
    logits, mask = torch.randn(3, 5, requires_grad=True), torch.tensor([1.0, 0.0, 1.0])

    def each(reduction: str) -> Any:
        labels = torch.tensor([1, 2, 3])
        return torch.nn.functional.cross_entropy(logits, labels, reduction=reduction)

    assert graphs.is_sum_of_labels(made(each, mask)) == is_sum


def test_results_that_a_statement_drops() -> None:
    """By what follows the call that has made a frame, also in a C function."""
    dropped: list[bool] = []

    def look() -> int:
        frame = sys._getframe(1)
        dropped.append(discarded.drops_result(frame.f_code, frame.f_lasti))
        return 1

    look()
    kept = look()
    _ = kept + look(), [look()]
    return_of = lambda: look()  # noqa: E731
    return_of()
    assert dropped == [True, False, False, False, False]


def test_ends_of_a_schedule_of_ones_own() -> None:
    """The step from which on the rate is 0; none for one that stays or comes back."""
    ends = schedule_lengths._end_of
    assert ends([lambda n: max(0.0, 1 - n / 100)]) == 100
    assert ends([lambda n: min(n / 10, 1) * max(0.0, (77 - n) / 67)]) == 77
    assert ends([lambda _: 1.0]) is None
    assert ends([lambda n: 0.9**n]) is None
    assert ends([lambda n: [1.0, 0.5, 0.0][n]]) is None  # it raises
    assert ends([lambda n: max(0.0, 1 - n / 100), lambda _: 1.0]) is None


def test_functions_that_are_left_alone() -> None:
    """One that writes isn't called, and one that takes long isn't called on."""
    calls: list[int] = []
    held = SimpleNamespace(last=0)

    def writing(step: int) -> float:
        held.last = step
        return max(0.0, 1 - step / 100)

    def slow(step: int) -> float:
        calls.append(step)
        time.sleep(0.0015)
        return max(0.0, 1 - step / 10_000)

    assert schedule_lengths._end_of([writing]) is None
    assert held.last == 0
    assert schedule_lengths._end_of([slow]) is None
    assert len(calls) < 9


def test_names_for_the_number_of_ranks() -> None:
    """In code, as a variable, an attribute or a function."""
    assert losses._names_ranks((lambda args: args.world_size).__code__)
    assert losses._names_ranks((lambda dist: dist.get_world_size()).__code__)
    assert not losses._names_ranks((lambda args: args.weight).__code__)


def test_digests_of_data_sets() -> None:
    """Equal for equal samples; none if they can't be read."""
    data = torch.utils.data.TensorDataset(torch.arange(6))
    other = torch.utils.data.TensorDataset(torch.arange(6) + 1)
    again = torch.utils.data.TensorDataset(torch.arange(6))
    assert digest_of_all(data) == digest_of_all(again) != digest_of_all(other)

    class Files:
        def __init__(self, names: object) -> None:
            self.names, self.folder = names, "data"

        def __len__(self) -> int:
            return 2

    assert digest_of_all(Files(["a", "b"])) == digest_of_all(Files(["a", "b"])) != ""
    assert digest_of_all(Files(["a", "b"])) != digest_of_all(Files(["a", "c"]))
    assert digest_of_all(Files(SimpleNamespace())) == ""


def test_norms_that_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a norm layer itself isn't replaced in place."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    nn: Any = torch.nn
    kind = type("SyncBatchNorm", (nn.SyncBatchNorm,), {})
    method = classmethod(nn.SyncBatchNorm.convert_sync_batchnorm.__func__)
    kind.convert_sync_batchnorm = method  # type: ignore[attr-defined]
    module: Any = ModuleType("torch.nn.modules.batchnorm")
    module.SyncBatchNorm = kind
    discarded.install(module)
    kind.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(4)))  # type: ignore[attr-defined]
    assert not sent
    kind.convert_sync_batchnorm(nn.BatchNorm1d(4))  # type: ignore[attr-defined]
    (found,) = (each.finding for each in sent if isinstance(each, Found))
    assert "convert_sync_batchnorm is dropped" in found.line
