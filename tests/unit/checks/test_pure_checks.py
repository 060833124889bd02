"""Each check on plain values: faults are found, healthy values aren't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from safe_launch.checks import (
    between_ranks,
    built,
    data,
    divided,
    loaded,
    saved,
    schedule,
    trained,
    updated,
)
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import Check, Finding, active, is_on
from safe_launch.checks.kept import Kept, read, write
from safe_launch.checks.saved import worst_kept
from safe_launch.checks.trained import Gradients
from safe_launch.checks.updated import Update
from safe_launch.core.request import CheckOptions
from support.tables import table

WEIGHTS = Compared(Shared.WEIGHTS, "", "train.py:7#1", 1, ("a", "b"))
SIZES = {"a.weight": 100, "b.weight": 10}
ALL = frozenset(SIZES)


@table(
    ("what", "values", "is_told"),
    [
        (Shared.SEED, {0: "1", 1: "2"}, True),
        (Shared.SEED, {0: "1", 1: "1"}, False),
        (Shared.SEED, {0: "1"}, False),
        (Shared.SUBSET, {0: "1", 1: "2"}, True),
        (Shared.SUBSET, {0: "1", 1: "1"}, False),
        (Shared.BATCH, {0: "a", 1: "a"}, True),
        (Shared.BATCH, {0: "a", 1: "b"}, False),
        (Shared.BATCH, {1: "a"}, False),
        (Shared.DRAWS, {0: "a", 1: "a"}, True),
        (Shared.DRAWS, {0: "a", 1: "b"}, False),
        (Shared.BUFFERS, {0: "x y", 1: "x y"}, False),
        (Shared.BUFFERS, {0: "x y", 1: "x z"}, True),
        (Shared.WEIGHTS, {0: "x y", 1: "x y"}, False),
        (Shared.WEIGHTS, {0: "x y", 1: "x z"}, True),
        (Shared.WEIGHTS, {0: "x y", 1: "x"}, False),
    ],
)
def test_ranks_that_differ(what: Shared, values: dict[int, str], is_told: bool) -> None:
    """Seeds and weights must be equal, batches must differ; a rank may be missing."""
    compared = Compared(what, "", "train.py:7#1", 1, ("a", "b"))
    found = between_ranks.judged(compared, values, range(2))
    assert (found is not None) == is_told


def test_the_ranks_that_most_differ_from() -> None:
    """Of four replicas the odd one is named with the first weight."""
    values = {0: "x y", 1: "x y", 2: "x z", 3: "x y"}
    found = between_ranks.judged(WEIGHTS, values, range(4))
    assert found is not None
    assert (found.ranks, found.parameter, found.where) == ((2,), "b", "train.py:7")
    assert between_ranks.judged(WEIGHTS, {2: "x z"}, (2,)) is None


@table(
    ("steps", "without", "foreign", "left", "says"),
    [
        (3, ALL, None, None, "trains nothing"),
        (3, ALL, ALL, {}, "none of them is the model's any more"),
        (2, ALL, None, None, ""),
        (3, frozenset({"a.weight"}), frozenset({"a.weight"}), {"new": 5}, "holds 1 parameter"),
        (3, frozenset({"a.weight"}), frozenset({"a.weight"}), {}, ""),
        (3, frozenset({"a.weight"}), frozenset(), {}, ""),
        (10, frozenset({"a.weight"}), frozenset(), {}, "91% of the elements"),
        (10, frozenset({"b.weight"}), frozenset(), {}, ""),
    ],
)
def test_gradients(
    steps: int,
    without: frozenset[str],
    foreign: frozenset[str] | None,
    left: dict[str, int] | None,
    says: str,
) -> None:
    """An optimizer has no gradients, another model's tensors, or gradients of few parameters."""
    seen = Gradients("Adam", steps, SIZES, without, foreign, left)
    found = trained.without_gradients(seen)
    assert (found is not None) == bool(says)
    assert found is None or says in found.sentence


def test_experts_without_tokens() -> None:
    """Missing gradients are fine if other experts of the layer have them."""
    sizes = {f"experts.{number}.w": 100 for number in range(8)}
    unused = frozenset(list(sizes)[1:])
    seen = Gradients("Adam", 10, sizes, unused, frozenset(), {})
    assert trained.without_gradients(seen) is None


def test_what_no_optimizer_has() -> None:
    """A forgotten head is reported; a frozen body below a trained head isn't."""
    seen = Gradients("Adam", 3, SIZES, frozenset(), frozenset(), {"head": 5})
    found = trained.left_out(seen)
    assert found is not None
    assert (found.parameter, found.certain) == ("head", False)
    body = Gradients("Adam", 3, SIZES, frozenset(), frozenset(), {"body": 5000})
    assert trained.left_out(body) is None


def _update(after: float, *, rate: float = 1e-6, gradient: float = 1.0) -> Update:
    return Update("w", "bfloat16", rate, [0.5] * 64, [after] * 64, [gradient] * 64)


@table(
    ("update", "is_told"),
    [
        (_update(0.5), True),
        (_update(0.49), False),
        (_update(0.5, rate=0.0), False),
        (_update(0.5, gradient=0.0), False),
        (Update("w", "bfloat16", 1e-6, [0.5], [0.5], [1.0]), False),
    ],
)
def test_lost_updates(update: Update, is_told: bool) -> None:
    """Weights with gradient and rate stay the same; a few elements prove nothing."""
    assert (updated.unchanged([update], "Adam") is not None) == is_told


@table(("kept", "is_certain"), [(15, None), (16, False), (57, False), (58, True)])
def test_updates_lost_in_part(kept: int, is_certain: bool | None) -> None:
    """A quarter of the weights that stay is suspicious; some optimizers round at random."""
    after = [0.5] * kept + [0.49] * (64 - kept)
    update = Update("w", "bfloat16", 1e-6, [0.5] * 64, after, [1.0] * 64)
    found = updated.unchanged([update], "Adam")
    assert (found and found.certain) is is_certain


def test_weights_that_an_evaluation_left() -> None:
    """Places with other values count; rounding doesn't."""
    before = [[1.0, 2.0], [0.0, 0.5], [3.0]]
    after = [[1.0, 2.00001], [0.0, 0.51], [3.0]]
    assert updated.exchanged(before, after, [1e-7] * 3) == [1]
    assert updated.exchanged(before, after, [1e-7, 0.05, 1e-7]) == []  # a coarser dtype
    found = updated.left_by_evaluation(["a", "b"])
    assert (found.certain, found.parameter) == (False, "a")
    assert "a and 1 more" in found.sentence


def test_frozen_and_adapters() -> None:
    """Frozen weights that move and trained adapters that don't are found."""
    still = Update("w", "", 0.0, [1.0], [1.0])
    assert updated.moved([still], "Adam") is None
    assert updated.moved([still, Update("v", "", 0.0, [1.0], [2.0])], "Adam") is not None
    assert updated.still_zero({"lora_B": [0.0]}, 2) is not None
    assert updated.still_zero({"lora_B": [0.0]}, 1) is None
    assert updated.still_zero({"lora_B": [0.0], "other": [0.1]}, 9) is None
    assert updated.still_zero({}, 9) is None


def test_weights_that_are_lost() -> None:
    """NaN counts from the step that has made it."""
    whole, lost = [1.0, 2.0], [1.0, float("nan")]
    made = Update("w", "", 0.1, whole, lost)
    found = updated.not_numbers([Update("v", "", 0.1, whole, whole), made], "Adam")
    assert found is not None
    assert (found.parameter, found.certain) == ("w", True)
    assert updated.not_numbers([Update("w", "", 0.1, lost, lost)], "Adam") is None
    assert updated.not_numbers([Update("w", "", 0.1, whole, whole)], "Adam") is None


@table(
    ("counts", "passes", "is_told"),
    [
        ([4] * 5, [4] * 5, True),
        ([1] * 5, [4] * 5, False),
        ([2] * 5, [4] * 5, False),  # once for each of two processes, as accelerate does
        ([4] * 4, [4] * 4, False),
        ([4, 4, 4, 4, 3], [4, 4, 4, 4, 3], False),
        ([1] * 5, [1] * 5, False),
    ],
)
def test_schedules(counts: list[int], passes: list[int], is_told: bool) -> None:
    """A schedule that steps with every micro batch is found."""
    found = schedule.too_often("LambdaLR", counts, passes)
    assert (found is not None) == is_told


def test_schedules_that_an_engine_steps_too() -> None:
    """Double stepping is found; an engine's stepping alone isn't."""
    for steps in (1, 2):
        found = schedule.too_often("StepLR", [steps] * 5, [1] * 5, by_engine=True)
        assert (found is not None) is (steps == 2)
    assert found is not None
    assert "2 times for every step of its optimizer, by DeepSpeed's engine and" in found.sentence


@table(
    ("digests", "steps", "is_told"),
    [
        (["a", "a", "a"], [0, 0, 1], True),
        (["a", "a", "a"], [0, 0, 0], False),
        (["a", "a", "b"], [0, 1, 2], False),
        (["a", "a"], [0, 1], False),
        (["", "", ""], [0, 1, 2], False),
    ],
)
def test_batches(digests: list[str], steps: list[int], is_told: bool) -> None:
    """The same batch over and over is found."""
    assert (data.same_batch(digests, steps) is not None) == is_told


@table(
    ("digests", "is_told"),
    [
        (["a", "a", "b", "b"], True),
        (["a", "a", "b", "c"], False),
        (["a", "a", "a", "a"], False),
        (["a", "a", "b"], False),
        (["", "", "b", "b"], False),
    ],
)
def test_streams(digests: list[str], is_told: bool) -> None:
    """Each worker's batches are the other one's, round after round."""
    assert (data.read_by_all(digests, 2) is not None) == is_told


def test_labels_and_types() -> None:
    """All labels ignored, or weights of a type that loses their updates."""
    assert data.IGNORED_LABELS.judged([True] * 3) is not None
    assert data.IGNORED_LABELS.judged([True, False, True]) is None
    assert data.IGNORED_LABELS.judged([True] * 2) is None
    assert updated.without_master("AdamW", ["w"], 0) is not None
    assert updated.without_master("AdamW", ["w"], 1) is None
    assert updated.without_master("SGD", ["w"], 0) is None


def test_saved() -> None:
    """Empty or untrained weights in a checkpoint; weights that are empty in the model are fine."""
    assert saved.empty({"w": (0,)}, {"w": (2, 2)}) is not None
    assert saved.empty({"w": (0,)}, {"w": (0,)}) is None
    assert saved.empty({"w": (2, 2)}, {"w": (2, 2)}) is None
    old, new = {"w": [1.0]}, {"w": [2.0]}
    assert saved.stale(old, new, old, is_certain=True) is not None
    assert saved.stale(new, new, old, is_certain=True) is None
    assert saved.stale(old, old, old, is_certain=True) is None
    assert saved.stale({}, new, old, is_certain=True) is None


def test_which_checks_are_made() -> None:
    """Options select the checks; a worker without them makes none."""
    environment = {"SAFE_LAUNCH_CHECKS": active(CheckOptions("on", ("data",)))}
    assert is_on(Check.TRAINED, environment)
    assert not is_on(Check.DATA, environment)
    assert active(CheckOptions("off")) == ""
    assert not is_on(Check.DATA, {})


def test_what_is_kept(tmp_path: Path) -> None:
    """Each finding once with all its ranks, and the reasons for skipped checks."""
    kept, finding = Kept(), Finding(Check.DATA, certain=True, sentence="no", ranks=(1,), step=2)
    assert kept.add(finding)
    assert not kept.add(Finding(Check.DATA, certain=True, sentence="no", ranks=(0,)))
    assert kept.skip(Check.SAVED, "unread")
    assert not kept.skip(Check.SAVED, "unread")
    write(tmp_path, kept)
    found = read(tmp_path)
    assert [each.ranks for each in found.findings] == [(0, 1)]
    assert found.skipped == {Check.SAVED: ("unread",)}
    assert found.findings[0].line == "check data: no [step 2, ranks 0, 1]."
    (tmp_path / "checks.json").write_text("{")
    assert read(tmp_path).findings == ()
    assert Finding(Check.DATA, certain=True, sentence="x", ranks=(3, 0, 1)).line.endswith(
        "[ranks 0, 1, 3]."
    )


@table(
    ("shapes", "is_told"),
    [
        ({"a": (2, 4), "b": (3,)}, True),
        ({"a": (4, 4), "b": (6,)}, False),  # whole
        ({"a": (2, 4), "b": (6,)}, False),  # one alone
        ({"a": (4, 2), "b": (3,)}, False),  # split by columns
        ({"a": (2, 4), "c": (3,)}, False),  # another model's
    ],
)
def test_parts_of_weights_that_were_saved(
    shapes: dict[str, tuple[int, ...]], is_told: bool
) -> None:
    """Several saved weights have fewer rows than the model's."""
    found = saved.cut(shapes, {"a": (4, 4), "b": (6,)})
    assert (found is not None) == is_told


@table(
    ("given", "unexpected", "missing", "is_told"),
    [
        (["m.a", "m.b"], ["m.a", "m.b"], ["a", "b"], True),
        (["m.a", "b"], ["m.a"], ["a"], False),
        ([], [], ["a"], False),
        (["m.a"], ["m.a"], [], False),
    ],
)
def test_loads_of_nothing(
    given: list[str], unexpected: list[str], missing: list[str], is_told: bool
) -> None:
    """No loaded name is in the model."""
    found = loaded.loads_nothing(given, unexpected, missing)
    assert (found is not None) == is_told


def test_schedules_that_do_not_fit() -> None:
    """The warmup is too long, the schedule is over, or the rate is overridden."""
    assert schedule.never_warm("LambdaLR", 10, 100) is None
    assert schedule.never_warm("LambdaLR", 500, 0) is None
    told = schedule.never_warm("LambdaLR", 500, 100)
    assert told is not None
    assert "at most 0.2 of" in told.sentence
    assert schedule.over("LambdaLR", 8, 13) is None
    assert schedule.over("LambdaLR", 8, 14) is not None
    again = schedule.over("CosineAnnealingLR", 8, 14, repeats=True)
    assert again is not None
    assert "raises the rate again" in again.sentence
    rates: list[tuple[str, dict[str, object], object]] = [
        ("WarmupLR", {"warmup_max_lr": 1e-5}, 1e-5),
        ("WarmupLR", {}, 0.001),
        ("WarmupLR", {}, None),
        ("OneCycle", {}, 1e-5),
    ]
    for each in rates:
        assert schedule.overruled(*each) is None
    assert schedule.overruled("WarmupDecayLR", {}, 1e-5) is not None


@table(
    ("counts", "is_told"),
    [([2, 2, 2], True), ([1, 1, 1], False), ([2, 2], False), ([2, 3, 2], False)],
)
def test_means_that_are_added_up(counts: list[int], is_told: bool) -> None:
    """Each of the first steps has the same number of passes."""
    assert (divided.summed(counts) is not None) == is_told


def test_an_optimizer_that_holds_nothing() -> None:
    """Another optimizer may hold the parameters; a model without trainable ones is reported."""
    for left, frozen, says in (({}, 0, ""), ({"new": 5}, 0, "new, which has"), ({}, 7, "all 7")):
        seen = Gradients("AdamW", 3, {}, frozenset(), frozenset(), left, frozen)
        found = trained.without_gradients(seen)
        assert says in found.sentence if found and says else found is None


@table(
    ("total", "steps", "accumulation", "ranks", "factor"),
    [
        (400, 100, 4, 1, 4),
        (400, 100, 1, 4, 4),
        (800, 100, 2, 4, 8),
        (405, 100, 4, 2, 4),  # the last batches of an epoch
        (400, 100, 1, 1, 0),  # ended early
        (300, 100, 2, 2, 0),
        (100, 100, 2, 2, 0),
        (14, 7, 2, 2, 0),  # too few to decide
    ],
)
def test_totals_that_count_something_else(
    total: int, steps: int, accumulation: int, ranks: int, factor: int
) -> None:
    """Totals in batches or in all ranks' steps are found; early stops aren't."""
    found = schedule.too_long("LambdaLR", total, steps, accumulation, ranks)
    assert (found is not None) == bool(factor)
    assert found is None or f"{factor} times the" in found.sentence


@table(
    ("total", "says"),
    [(100, ""), (110, ""), (151, ""), (40, "at its end after 40%"), (400, "ends after 25%")],
)
def test_totals_that_a_trainer_is_given(total: int, says: str) -> None:
    """A total far above or below the Trainer's is found."""
    found = schedule.unfit("LambdaLR", total, 100)
    assert says in found.sentence if found and says else found is None


@table(
    ("counts", "is_told"),
    [
        ([(4, 3)] * 3, True),
        ([(4, 0)] * 3, False),
        ([(1, 0)] * 3, False),
        ([(4, 3), (4, 3), (2, 1)], False),  # skipped steps
        ([(4, 3)] * 2, False),
    ],
)
def test_gradients_that_are_cleared_between_passes(
    counts: list[tuple[int, int]], is_told: bool
) -> None:
    """Each of the first steps clears before every pass but its first."""
    assert (divided.cleared(counts) is not None) == is_told


def test_fields_that_a_loss_asks_for() -> None:
    """Reported if the samples have them."""
    assert data.dropped([], "Weighted.compute_loss") is None
    found = data.dropped(["weight"], "Weighted.compute_loss")
    assert found is not None
    assert "asks for weight" in found.sentence


def test_texts() -> None:
    """A finding needs all first batches; one with added tokens refutes it."""
    for fault in (data.SHIFTED_LABELS, data.ENDLESS_ANSWERS, data.BEGUN_TWICE):
        assert fault.judged([True] * 3) is not None
        assert fault.judged([True, True, False]) is None
        assert fault.judged([True] * 2) is None
    assert data.UNTRAINED_WORDS.judged([False, True, False]) is not None
    assert data.UNTRAINED_WORDS.judged([False] * 3) is None
    assert data.TRAINED_PADDING.judged([True, False, True]) is not None
    assert data.TRAINED_PADDING.judged([True, False, False]) is None


def test_what_is_built_otherwise() -> None:
    """Outputs normalized twice, biases with decay, and weights without a copy."""
    assert built.normalized_twice("") is None
    assert built.normalized_twice("the softmax of a softmax") is not None
    assert built.decays_all("AdamW", 1, []) is None
    assert built.decays_all("AdamW", 1, ["a.bias"]) is not None
    assert updated.without_copy("AdamW", {"a": 60}, 100) is not None
    assert updated.without_copy("AdamW", {"a": 50}, 100) is None
    assert updated.without_copy("SGD", {"a": 60}, 100) is None


@table(
    ("scheduler", "part", "done", "is_told"),
    [
        ("ExponentialLR", 0.9**9, 9, True),
        ("MultiplicativeLR", 0.5**9, 9, True),
        ("ExponentialLR", 0.999**9, 9, False),  # a decay by step
        ("ExponentialLR", 0.9, 1, False),  # once an epoch
        ("ExponentialLR", 1.0, 9, False),
        ("ExponentialLR", 0.0, 9, False),
        ("CosineAnnealingLR", 0.3, 9, False),
    ],
)
def test_decays_for_epochs(scheduler: str, part: float, done: int, is_told: bool) -> None:
    """A decay that would leave nothing of the rate within a hundred steps isn't one by step."""
    found = schedule.decays_at_once(scheduler, part, done, 9)
    assert (found is not None) == is_told


@table(
    ("passes", "accumulation", "is_told"),
    [
        ([4, 4, 4], 4, True),
        ([4, 4], 4, False),
        ([1, 1, 1], 4, False),
        ([2, 2, 2], 4, False),  # two losses of a micro batch
        ([1, 1, 1], 1, False),
    ],
)
def test_accumulations_that_are_counted_twice(
    passes: list[int], accumulation: int, is_told: bool
) -> None:
    """A loop that calls the engine's `step` as seldom as the engine itself makes one."""
    found = divided.counted_twice(passes, accumulation)
    assert (found is not None) == is_told


def test_saved_otherwise_than_meant() -> None:
    """What a best state dict or an adapter's file lacks is named."""
    about = 3, "train.py:7"
    loaded, kept = (saved.by_reference("a", *about, is_loaded=each) for each in (True, False))
    assert (loaded.certain, kept.certain, loaded.parameter) == (True, False, "a")
    assert saved.left_out([]) is None
    lacking = saved.left_out(["head.weight"])
    assert lacking is not None
    assert "1 parameter" in lacking.sentence


def test_what_is_thawed_after_the_optimizer_was_made() -> None:
    """It is named however large it is; a body that was never frozen is meant."""
    left = {"hidden.weight": 1000, "other.weight": 5}
    seen = Gradients("AdamW", 3, SIZES, frozenset(), frozenset(), left)
    assert trained.left_out(seen) is None
    found = trained.left_out(replace(seen, thawed=frozenset({"hidden.weight"})))
    assert found is not None
    assert (found.parameter, "frozen" in found.sentence) == ("hidden.weight", True)
    assert trained.gathered("AdamW", [], 5, 3) is None


@table(
    ("metric", "is_greater_better", "is_told"),
    [
        *(("eval_rmse", True, True), ("eval_rmse", False, False), ("loss", True, True)),
        *(("eval_accuracy", False, True), ("accuracy", True, False), ("eval_rougeL", False, True)),
        *(("neg_mse", True, False), ("score", True, False), ("acc_loss", True, False)),
        *(("wer_reduction", True, False), ("eval_task-a/f1", False, True)),
    ],
)
def test_the_best_that_is_the_worst(metric: str, is_greater_better: bool, is_told: bool) -> None:
    """Only words that are clear count."""
    found = worst_kept(metric, is_greater_better=is_greater_better)
    assert (found is not None) == is_told


@table(
    ("values", "is_told"),
    [
        ([0.6931] * 10, True),
        ([0.6931] * 9, False),
        ([*[0.6931] * 9, 0.6932], False),
        ([0.0] * 10, False),  # of advantages
        ([float("nan")] * 10, False),
    ],
)
def test_losses_that_stay(values: list[float], is_told: bool) -> None:
    """A loss of ten steps that are equal, to the last digit."""
    assert (built.still_loss(values) is not None) == is_told


@table(
    ("values", "words"),
    [
        ({0: "a s", 1: "a s"}, "their first batches are equal"),
        ({0: "a", 1: "a"}, "their first batches are equal"),
        ({0: "a s", 1: "b s"}, "each in another order"),
        ({0: "a s", 1: "b t"}, ""),  # each has read its part
        ({0: "a", 1: "b"}, ""),  # nobody knows
        ({0: "a s", 1: "b"}, ""),
    ],
)
def test_undivided_loaders(values: dict[int, str], words: str) -> None:
    """Equal batches are a fault; equal data sets in another order are one that may be meant."""
    compared = Compared(Shared.BATCH, "", "train.py:7")
    found = between_ranks.judged(compared, values, (0, 1))
    assert (found is not None) == bool(words)
    if found is not None:
        assert words in found.sentence
        assert found.certain == ("equal" in words)


@table(
    ("first", "second", "is_told"),
    [
        (range(40), range(30, 70), True),
        (range(40), range(37, 77), False),  # three
        (range(40), range(40, 80), False),
        (range(1000), range(990, 1990), False),  # 1 %
        ([*range(20)] * 2, [*range(10, 30)] * 2, False),  # samples that each rank has repeatedly
        ([*range(280), *range(20)], [*range(260, 540), *range(260, 280)], False),
        ([*range(280), *range(2)], [*range(200, 480)], True),
        ([], range(10), False),
    ],
)
def test_samples_of_several_ranks(first: list[int], second: list[int], is_told: bool) -> None:
    """Samples that two ranks have are a fault if each has its samples once."""
    values = {0: between_ranks.sketched(first), 1: between_ranks.sketched(second)}
    found = between_ranks.judged(Compared(Shared.SAMPLES, "", "train.py:7"), values, (0, 1))
    assert (found is not None) == is_told
    assert found is None or found.ranks == (0, 1)


ZEROED = dict.fromkeys(range(6), (True, True)) | {9: (False, True)}
STILL = dict.fromkeys(range(6), (True, False)) | {9: (False, True)}
MASKED = dict.fromkeys(range(6), (False, True)) | {9: (True, True)}


@table(
    ("steps", "is_told"),
    [
        ([ZEROED] * 3, True),
        ([ZEROED] * 2, False),
        ([STILL] * 3, False),  # they are put back
        ([MASKED] * 3, False),
        ([ZEROED, MASKED, ZEROED], False),  # words without a loss in one batch
        ([dict.fromkeys(range(6), (True, True))] * 3, False),  # no gradient at all
    ],
)
def test_rows_that_are_to_stay(steps: list[dict[int, tuple[bool, bool]]], is_told: bool) -> None:
    """They have no gradient, are in use, and move."""
    assert (trained.zeroed_rows("embedding.weight", steps) is not None) == is_told
