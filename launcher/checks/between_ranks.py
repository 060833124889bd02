"""Compares values that must be equal, or must differ, between ranks.

Node 0 compares all ranks when their values have arrived; no rank waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from ..core.errors import EXPLAINED
from ..core.limits import WORD, Count, Limit, Line
from ..core.quantities import count_of
from . import gradients
from .finding import Check, Fault, Finding, first_of


class Shared(StrEnum):
    """Quantities compared between ranks."""

    SEED = "seed"
    """Seed that shuffles samples before each rank takes its part: equal on all ranks."""
    SUBSET = "subset"
    """Samples from which each rank takes its part: equal on all ranks."""
    BATCH = "batch"
    """First batch of an undivided loader, and its data set: different on each rank."""
    SAMPLES = "samples"
    """Digests of samples (`sketched`): different on each rank."""
    STREAM = "stream"
    """First batch of a stream: different on each rank."""
    DRAWS = "draws"
    """Digest of random values that a loop draws: different on each rank."""
    WEIGHTS = "weights"
    """Digests of replicated weights, separated by spaces: equal on all ranks."""
    BUFFERS = "buffers"
    """Digests of buffers that rank 0's replace: equal on all ranks."""
    DIVIDED = "divided"
    """Digests of weights before FSDP divides them, separated by spaces: equal on all ranks."""
    RATES = "rates"
    """Learning rates that a schedule has set by a metric: equal on all ranks."""
    GRADIENTS = "gradients"
    """Gradient elements (`seen_gradients`): the ranks' additions must be averaged."""
    STEP = "step"
    """A step's loss (`between_attempts`): compared only with another attempt's."""


SKETCH = 256
"""Maximum digests of a rank's samples to compare."""
LEAST, COMMON = 4, 0.05
"""Minimum of samples that several ranks have, and of their part."""
MANY = 8
"""Minimum of that part, as a multiple of the samples that come again within a rank."""

Names = Annotated[
    tuple[str, ...],
    Limit(
        "a few names",
        lambda names: len(names) <= WORD and all(len(name) <= WORD for name in names),
    ),
]


@dataclass(frozen=True, slots=True)
class Compared:
    """This rank's value of a quantity compared between ranks.

    Attributes:
        what: the compared quantity.
        value: this rank's value; a digest for a batch, one digest per name for weights.
        place: the user's line or the wrapper, which identifies the quantity on all ranks.
        step: optimizer steps done; None if irrelevant.
        names: of the weights.
    """

    what: Shared
    value: Line
    place: Line
    step: Count | None = None
    names: Names = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Key that groups the ranks' values."""
        return self.what, self.place, self.step, self.names


def judged(compared: Compared, values: Mapping[int, str], ranks: Collection[int]) -> Finding | None:
    """The finding, if any, once all ranks' values have arrived.

    Args:
        compared: the quantity, as sent by any rank.
        values: the ranks' values that have arrived.
        ranks: all ranks of the run.
    """
    if len(ranks) < 2 or values.keys() != set(ranks):
        return None
    finding = _found(compared, values)
    return finding and replace(
        finding,
        where=compared.place.partition("#")[0],
        ranks=finding.ranks or tuple(sorted(values)),
        step=finding.step or compared.step,
    )


def _found(compared: Compared, values: Mapping[int, str]) -> Finding | None:
    match compared.what:
        case Shared.SEED:
            first, other = _first_differing(values)
            seeds = {"one": values[first], "another": values[other]}
            return SEEDS.found(first=first, other=other, **seeds) if first != other else None
        case Shared.SUBSET:
            return SUBSETS.found() if len(set(values.values())) > 1 else None
        case Shared.SAMPLES:
            return _overlapping(values)
        case Shared.BATCH | Shared.STREAM | Shared.DRAWS:
            return _equal(compared.what, values)
        case Shared.WEIGHTS | Shared.BUFFERS | Shared.DIVIDED:
            return _weights(compared, values)
        case Shared.RATES:
            return _rates(values)
        case Shared.GRADIENTS:
            finding = gradients.judged(compared.names, values)
            return finding and replace(finding, step=compared.step or 1)
        case Shared.STEP:
            return None


def _first_differing(values: Mapping[int, str]) -> tuple[int, int]:
    """The first rank, and the first with another value; the same if there is none."""
    first, *others = sorted(values)
    return first, next((rank for rank in others if values[rank] != values[first]), first)


def _equal(what: Shared, values: Mapping[int, str]) -> Finding | None:
    """Reports equal values, or for batches of an undivided loader also equal data sets."""
    batches, samples = zip(*((*value.split(), "")[:2] for value in values.values()), strict=True)
    if len({*batches}) == 1:
        return EQUAL[what].found()
    return ORDERED_APART.found() if len({*samples}) == 1 and samples[0] else None


def sketched(digests: Sequence[int]) -> str:
    """How many digests come again, and of how many; and the smallest, each once, of any set."""
    distinct = sorted({*digests})
    again = len(digests) - len(distinct)
    return " ".join([f"{again}/{len(digests)}", *(f"{one:x}" for one in distinct[:SKETCH])])


def _overlapping(values: Mapping[int, str]) -> Finding | None:
    """Reports samples that several ranks have, though each rank has its samples once.

    A data set that has samples more than once has them within ranks about half as often.
    """
    repeats, counts, parts = 0, 0, {}
    for rank, value in values.items():
        first, *digests = value.split()
        again, _, count = first.partition("/")
        repeats, counts, parts[rank] = repeats + int(again), counts + int(count), {*digests}
    held = Counter(digest for part in parts.values() for digest in part)
    common = [digest for digest, ranks in held.items() if ranks > 1]
    usual = max(COMMON, MANY * repeats / max(counts, 1))
    if len(common) < max(LEAST, usual * len(held)):
        return None
    ranks = tuple(sorted(rank for rank in parts if not parts[rank].isdisjoint(common)))
    return replace(OVERLAPPING.found(common=len(common), held=len(held)), ranks=ranks)


def _weights(compared: Compared, values: Mapping[int, str]) -> Finding | None:
    """Reports differing weights or buffers: the first of them, and the minority ranks."""
    differing, ranks = _differing(compared, values)
    if not differing:
        return None
    step = compared.step or 0
    names = first_of(differing)
    match compared.what:
        case Shared.BUFFERS:  # those of all ranks differ
            found, ranks = BUFFERS.found(step + 1, names=names), ()
        case Shared.DIVIDED:
            found = DIVIDED.found(1, names=names)
        case _:
            found = REPLICAS.found(
                max(step, 1),
                count=len(differing),
                sampled=count_of(len(compared.names), "sampled parameter"),
                when=f"after step {step}" if step else "before the first step",
                first=differing[0],
                advice=AFTER if step else BEFORE,
            )
    return replace(found, ranks=ranks, parameter=differing[0])


def _rates(values: Mapping[int, str]) -> Finding | None:
    """Reports ranks that go on with different learning rates."""
    first, other = _first_differing(values)
    if first == other:
        return None
    pairs = zip(values[first].split(), values[other].split(), strict=False)
    one, another = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return RATES.found(first=first, one=one, other=other, another=another)


def _differing(compared: Compared, values: Mapping[int, str]) -> tuple[list[str], tuple[int, ...]]:
    """The names with differing digests, and the minority ranks of the first."""
    digests = {rank: value.split() for rank, value in values.items()}
    if any(len(parts) != len(compared.names) for parts in digests.values()):
        return [], ()
    columns = zip(*(digests[rank] for rank in sorted(digests)), strict=True)
    differing = {
        name: column
        for name, column in zip(compared.names, columns, strict=True)
        if len({*column}) > 1
    }
    if not differing:
        return [], ()
    first = next(iter(differing.values()))
    most, _ = Counter(first).most_common(1)[0]
    ranks = zip(sorted(digests), first, strict=True)
    return [*differing], tuple(rank for rank, digest in ranks if digest != most)


SEEDS = Fault(
    "the ranks shuffle by different seeds (rank {first}: {one}, rank {other}: {another}): each "
    "takes its part of another order, so that samples are seen several times and others never",
    f"Give every rank the same seed ({EXPLAINED})",
    certain=True,
)
SUBSETS = Fault(
    "the ranks divide different subsets of the data set among them: samples that one rank sets "
    "apart are trained on by another, and others are never seen",
    "Choose the subset alike on every rank, e.g. random_split with a generator of the same seed",
    certain=True,
)
SAMPLES = "every rank trains on the same samples: their first batches are equal, as"
BY_NODE = "datasets.distributed.split_dataset_by_node"
EQUAL = {
    Shared.BATCH: Fault(
        f"{SAMPLES} the loader has no DistributedSampler",
        f"Give the loader one ({EXPLAINED})",
        certain=True,
    ),
    Shared.STREAM: Fault(
        f"{SAMPLES} the data set is an undivided stream",
        f"Let each rank take a part of it, e.g. by {BY_NODE} ({EXPLAINED})",
        certain=True,
    ),
    Shared.DRAWS: Fault(
        "the loop draws the same random values on every rank, as all have the same seed: "
        "noise and augmentations repeat between ranks",
        "Seed each rank differently after the model is made, e.g. torch.manual_seed(seed + rank)",
    ),
}
"""The faults of equal values."""
ORDERED_APART = Fault(
    "every rank goes through all samples, each in another order: an epoch sees each sample as "
    "often as there are ranks, as the loader has no DistributedSampler",
    f"Give the loader one ({EXPLAINED})",
)
"""The fault of ranks that shuffle equal data sets differently."""
OVERLAPPING = Fault(
    "ranks train on the same samples: {common} of {held} that the first batches have are in those "
    "of several ranks, though each rank has its samples once",
    "Divide the samples, or the files that have them, in an order that is the same on every rank: "
    "shuffle with the same seed, and then take each rank's part",
)
REPLICAS = Fault(
    "the ranks' replicas of the model differ: {count} of {sampled} {when}, first {first}",
    "{advice}",
    certain=True,
    check=Check.REPLICAS,
)
BEFORE = (
    "Something has changed the weights of some ranks since DistributedDataParallel made them "
    "equal: load or initialize them before it, on all ranks"
)
AFTER = (
    "Gradients aren't averaged over the ranks, or a rank updates differently: call the wrapper and "
    "not its .module, synchronize the last backward pass, step on every rank alike, and call "
    "fully_shard also on the whole model"
)
BUFFERS = Fault(
    "each rank updates buffers by its own batches, and DistributedDataParallel replaces them by "
    "rank 0's before the next forward pass: {names}",
    "all_reduce the statistics from which they are updated",
    check=Check.REPLICAS,
)
DIVIDED = Fault(
    "the ranks' weights differ as fully_shard divides them: {names}; each rank keeps a part of its "
    "weights, and nothing makes them equal",
    "Load or initialize them alike on all ranks before it, or load them afterwards, e.g. by "
    "set_model_state_dict with broadcast_from_rank0",
    check=Check.REPLICAS,
)
RATES = Fault(
    "the ranks train the same weights at different learning rates: ReduceLROnPlateau has set {one} "
    "on rank {first} and {another} on rank {other}, as each has a metric of its own",
    "Give it the same metric on every rank: all_reduce the sums of the evaluation before it",
    certain=True,
    check=Check.REPLICAS,
)
