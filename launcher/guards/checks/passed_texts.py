"""Checks the texts of a decoder's first training passes, and how an encoder-decoder starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...checks import rows as judged
from ...checks.finding import Finding, first_of
from ...checks.rows import Row
from ..model_facts import base_of
from . import tokenizers
from .copies import Facts
from .reporting import report
from .texts import IGNORED, is_extended, is_shifting, numbers

ROWS = 16
"""Maximum rows of a batch to inspect."""
BATCHES = 3
"""Minimum batches to judge."""
SAMPLES, LONGEST = 4, 128
"""Maximum rows of a batch, and tokens of a row, in which markers are looked for."""
ENOUGH = 24
"""Rows that are enough to judge."""
PACKING = ("cu_seq_lens_q", "seq_idx", "position_ids")
"""Arguments that keep the texts of a row apart."""


class Texts:
    """What the first batches of a model's training hold.

    Attributes:
        is_open: whether to look at more.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._facts, self._starts, self._samples = (Facts(BATCHES) for _ in range(3))
        self._rows = 0
        self._is_plain = True

    def look(self, model: Any, given: Mapping[str, Any]) -> None:
        """Looks at a batch before its forward pass."""
        if not self.is_open:
            return
        base = base_of(model)
        labels: Any = given.get("labels")
        config = getattr(base, "config", None)
        if getattr(labels, "ndim", 0) != 2 or labels.is_floating_point() or config is None:
            return
        if getattr(config, "is_encoder_decoder", False):
            self._look_at_start(labels, given, config)
        elif is_shifting(base) and "shift_labels" not in given:
            self._look_at_rows(labels, given, base)

    def _look_at_start(self, labels: Any, given: Mapping[str, Any], config: Any) -> None:
        start = getattr(config, "decoder_start_token_id", None)
        others = (config.pad_token_id, *numbers(config.eos_token_id))
        if start is None or start in others or given.get("decoder_input_ids") is not None:
            self.is_open = False
            return
        if not self._starts.are_enough:
            self._starts.add((labels[:, 0] == start).all())
        if self._starts.are_there:
            self.is_open = False
            shown = [is_start for (is_start,) in self._starts.truths()]
            report(judged.STARTED_TWICE.judged(shown), where=self._starts.where)

    def _look_at_rows(self, labels: Any, given: Mapping[str, Any], model: Any) -> None:
        ids: Any = given.get("input_ids")
        if getattr(ids, "shape", ()) != labels.shape or labels.shape[1] < 4:
            return
        mask = given.get("attention_mask")
        if mask is not None and getattr(mask, "shape", ()) != ids.shape:
            self.is_open = False
            return
        if not self._facts.are_enough or self._rows < ENOUGH:
            self._is_plain &= all(given.get(name) is None for name in PACKING)
            if not self._samples.are_enough and tokenizers.are_known():
                self._samples.add(*ids[:SAMPLES, :LONGEST])
            ends = {*stops_of(model), *tokenizers.ids_of("eos_token_id")}
            rows = ids[:ROWS], labels[:ROWS], None if mask is None else mask[:ROWS] != 0
            if not self._facts.add(*facts_of(*rows, ends, tokenizers.added)):
                self.is_open = False
                return
            self._rows += min(len(ids), ROWS)
        if self._facts.are_there and self._rows >= ENOUGH:
            self.is_open = False
            report(*self._judged(model), where=self._facts.where)

    def _judged(self, model: Any) -> Iterator[Finding | None]:
        """Judges the rows once their facts have arrived."""
        batches = (zip(*parts, strict=True) for parts in self._facts.parts())
        rows = [Row(*map(int, row)) for batch in batches for row in batch]
        yield judged.unanswered(rows)
        yield judged.endless(rows)
        texts = [[*map(int, text)] for parts in self._samples.parts() for text in parts]
        of_chats = [*tokenizers.judgements(rows, texts)]
        yield from of_chats
        yield None if any(of_chats) else _other_end(rows, model)
        begin = getattr(model.config, "bos_token_id", None)
        ends = {*stops_of(model), *tokenizers.ids_of("eos_token_id")}
        begin = None if begin in (*ends, model.config.pad_token_id) else begin
        yield judged.begun_answers(rows, begin)
        yield judged.ended_prompts(rows, ends, begin)
        yield judged.joined(rows) if self._is_plain else None
        is_grown = is_extended(model)  # as another check reports
        if tokenizers.added and not is_grown and not is_embedding_trained(model):
            tokens = first_of([*tokenizers.added.values()])
            yield judged.unknown_rows(sum(row.added > 0 for row in rows), tokens)


def is_embedding_trained(model: Any) -> bool:
    """Whether rows of tokens are trained, in the input's or the output's embedding."""
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    layers = tuple(layer for layer in layers if layer is not None)
    return any(param.requires_grad for layer in layers for param in layer.parameters())


def _other_end(rows: list[Row], model: Any) -> Finding | None:
    """Reports texts that end with a special token which generation doesn't stop at."""
    stops, texts = stops_of(model), judged.answered(rows)
    longest = max((row.length for row in texts), default=0)
    texts = [row for row in texts if row.length < longest or row.restarts == 0]
    end = judged.common([row.last for row in texts])
    if end is not None and not tokenizers.special(end) and tokenizers.is_blank(end):
        end = judged.common([row.second_last for row in texts])
    if end is None or end in stops or not stops or len(texts) < judged.ROWS:
        return None
    name = tokenizers.special(end)
    return judged.other_end(name, tokenizers.named(sorted(stops))) if name else None


def stops_of(model: Any) -> set[int]:
    """The tokens at which a model's generation stops."""
    kept = (getattr(model, "generation_config", None), model.config)
    return {end for config in kept for end in numbers(getattr(config, "eos_token_id", None))}


def facts_of(
    ids: Any, labels: Any, mask: Any, ends: Collection[int], added: Collection[int]
) -> Iterator[Any]:
    """The facts of a batch's rows: a tensor for each attribute of `Row`, in their order."""
    import torch

    width = ids.shape[1]
    columns = torch.arange(width, device=ids.device)
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    counts = labels != IGNORED

    def at(tokens: Any, places: Any) -> Any:
        """The tokens of these places, of which -1 is none."""
        found = tokens.gather(1, places.clamp(min=0)[:, None])[:, 0]
        return torch.where(places < 0, -1, found)

    def last_of(places: Any) -> Any:
        return torch.where(places, columns, -1).amax(1)

    def are(tokens: Any, known: Collection[int]) -> Any:
        return torch.isin(tokens, torch.tensor([*known], device=ids.device, dtype=ids.dtype))

    begin = mask.long().argmax(1)
    first = torch.where(counts.any(1), counts.long().argmax(1), -1)
    before = torch.where(first > begin, first - 1, -1)
    last, is_end = last_of(counts), are(ids, ends) & mask
    second_last = last_of(counts & (columns < last[:, None]))
    begin_token = at(ids, begin)
    yield mask.sum(1)
    yield counts.sum(1)
    yield (counts[:, 1:] & ~counts[:, :-1]).sum(1) + counts[:, 0]
    yield begin_token
    yield at(ids, before)
    yield at(labels, first)
    yield at(labels, last)
    yield at(labels, second_last)
    yield (last == last_of(mask)) & (last >= 0)
    yield is_end.sum(1)
    yield (is_end & (columns < before[:, None])).sum(1)
    yield (is_end[:, :-1] & mask[:, 1:] & (ids[:, 1:] == begin_token[:, None])).sum(1)
    yield are(labels, added).sum(1) if added else last * 0
