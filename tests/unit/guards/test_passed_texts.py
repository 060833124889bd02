"""What the first training passes of transformers' models show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.checks.rows import Row
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import passed_texts, passes, tokenizers
from support import new_worker
from support.lazy import Lazy

torch = Lazy("torch")
transformers = Lazy("transformers")

PAD, BEGIN, END, TURN = 0, 1, 2, 3
SIZES = {
    "vocab_size": 50,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "pad_token_id": PAD,
    "bos_token_id": BEGIN,
    "eos_token_id": END,
}


@pytest.fixture(autouse=True)
def is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks are on, and no tokenizer is known."""
    monkeypatch.setenv(VARIABLE, f"{Check.DATA},{Check.TRAINED}")
    monkeypatch.setattr(tokenizers, "_known", set())
    monkeypatch.setattr(tokenizers, "added", {})


@pytest.fixture
def messages() -> list[Message]:
    """What the worker sends."""
    sent: list[Message] = []
    new_worker.begin().report_to(sent.append)
    return sent


def found(messages: list[Message]) -> list[str]:
    """The sentences of the findings."""
    assert all(isinstance(each, Found) for each in messages)
    return [each.finding.sentence for each in messages if isinstance(each, Found)]


def llama(**more: Any) -> Any:
    """A small decoder."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | more))


def texts(end: tuple[int, ...] = (END,), begin: tuple[int, ...] = ()) -> Iterator[list[list[int]]]:
    """Batches of texts of different lengths."""
    for place in range(4):
        words = range(10 + place, 22 + place)
        yield [[*begin, *range(word, word + 3 + word % 4), *end] for word in words]


def batch(rows: list[list[int]], asked: int = 0) -> dict[str, Any]:
    """A batch whose labels count behind the question."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = torch.where(mask == 0, -100, ids)
    labels[:, :asked] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def test_facts_of_a_row() -> None:
    """Each attribute of a row, behind padding on the left as well."""
    ids = torch.tensor(
        [[PAD, BEGIN, 5, END, BEGIN, 6, 7, END], [BEGIN, 5, 6, 7, END, PAD, PAD, PAD]]
    )
    labels = ids.clone()
    labels[0, :6] = labels[1, 5:] = -100
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]]) != 0
    facts = [fact.tolist() for fact in passed_texts.facts_of(ids, labels, mask, {END}, {7})]
    first, second = (Row(*map(int, row)) for row in zip(*facts, strict=True))
    assert first == Row(7, 2, 1, BEGIN, 6, 7, END, 7, 1, 2, 1, 1, 1)
    assert second == Row(5, 5, 1, BEGIN, -1, BEGIN, END, 7, 1, 1, 0, 0, 1)
    labels[:] = -100
    facts = [fact.tolist() for fact in passed_texts.facts_of(ids, labels, None, set(), set())]
    first, _ = (Row(*map(int, row)) for row in zip(*facts, strict=True))
    assert first == Row(8, 0, 0, PAD, -1, -1, -1, -1, 0, 0, 0, 0, 0)


def test_texts_without_ends(messages: list[Message]) -> None:
    """A training that ends no text has a finding, one that does none, nor an evaluation."""
    model = llama()
    passes.watch(model)
    for rows in texts(()):
        model(**batch(rows)).loss.backward()
    (sentence,) = found(messages)
    assert "none of the first 36 texts has an end-of-text token" in sentence
    assert len(model._forward_pre_hooks) == 1
    for rows in [*texts(())] * 2:
        model(**batch(rows))
    assert len(model._forward_pre_hooks) == 0


@pytest.mark.parametrize("mode", ["right", "evaluated", "without_grad", "encoder", "compiled"])
def test_right_trainings(mode: str, messages: list[Message]) -> None:
    """Ended texts, evaluations and others have no finding."""
    model = llama()
    kind = model
    if mode == "encoder":
        config = transformers.BertConfig(**SIZES)
        kind = model = transformers.BertForMaskedLM(config)
    passes.watch(model)
    model.train(mode != "evaluated")
    if mode == "compiled":
        kind = torch.compile(model, backend="eager", fullgraph=True)
    with torch.set_grad_enabled(mode != "without_grad"):
        for rows in texts((END,) if mode == "right" else ()):
            kind(**batch(rows))
    assert found(messages) == []


class Speaker:
    """A tokenizer as far as it is asked."""

    eos_token_id = END
    all_special_ids = (PAD, BEGIN, END, TURN)

    def __init__(self) -> None:
        self.added_tokens_decoder: dict[int, str] = {}
        tokenizers._known.add(self)

    @staticmethod
    def convert_ids_to_tokens(number: int) -> str:
        """The token of an id."""
        return {END: "</s>", TURN: "<turn>", 9: "\n"}.get(number, f"w{number}")

    def decode(self, numbers: list[int]) -> str:
        """The text of ids."""
        return "".join(map(self.convert_ids_to_tokens, numbers))


@pytest.mark.parametrize(
    ("end", "stops", "is_found"),
    [
        ((TURN,), END, True),
        ((TURN, 9), END, True),  # a template's new line
        ((TURN,), [END, TURN], False),
        ((END,), END, False),
        ((8,), END, False),  # a word, as a full stop
    ],
)
def test_ends_of_turns(
    end: tuple[int, ...], stops: Any, is_found: bool, messages: list[Message]
) -> None:
    """The end that is trained is compared with those that generation stops at."""
    speaker, model = Speaker(), llama()
    model.generation_config.eos_token_id = stops
    passes.watch(model)
    for rows in texts(end):
        model(**batch(rows))
    sentences = [each for each in found(messages) if "generation won't stop" in each]
    assert bool(sentences) == is_found
    assert speaker.eos_token_id == END


def test_answers_of_a_part(messages: list[Message]) -> None:
    """Rows without labels, and answers that begin with a token of their own."""
    model = llama()
    passes.watch(model)
    for rows in texts((END,), (BEGIN,)):
        given = batch(rows, 1)
        given["labels"][:3] = -100
        model(**given)
    (sentence,) = found(messages)
    assert "9 of the first 36 have no label" in sentence


@pytest.mark.parametrize("start", [TURN, 40])
def test_starts_of_a_decoder(start: int, messages: list[Message]) -> None:
    """Labels that begin with the token that the model puts before them."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 50}
    config = transformers.T5Config(**sizes, decoder_start_token_id=TURN, eos_token_id=END)
    model = transformers.T5ForConditionalGeneration(config)
    passes.watch(model)
    for rows in texts((END,), (start,)):
        model(**batch(rows))
    assert ["starts twice" in each for each in found(messages)] == [True] * (start == TURN)


@pytest.mark.parametrize("is_trained", [False, True])
def test_added_tokens(is_trained: bool, messages: list[Message]) -> None:
    """Tokens that were added are among the labels, and the embedding is frozen."""
    tokenizers.added[TURN] = "<tool>"
    model = llama()
    model.get_input_embeddings().requires_grad_(is_trained)
    model.get_output_embeddings().requires_grad_(False)
    passes.watch(model)
    for rows in texts((TURN, 7, 8, END)):
        model(**batch(rows))
    assert ["the labels have <tool>" in each for each in found(messages)] == [True] * (
        not is_trained
    )


def test_models_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outermost transformers models in what is trained, once each."""
    model = torch.nn.ModuleDict({"inner": torch.nn.Sequential(llama())})
    watched: list[Any] = []
    monkeypatch.setattr(passes, "known_models", lambda: [model])
    monkeypatch.setattr(passes, "watch", watched.append)
    looking = passes.Passes()
    for _ in range(3):
        looking.begin()
    assert watched == [model["inner"][0]]


def test_tokens_that_a_script_adds() -> None:
    """New ones only, and the result is the function's."""
    from tokenizers import Tokenizer, models

    vocabulary = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, "<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, unk_token="<unk>")
    wrapped = tokenizer.add_tokens
    assert tokenizers._adding(wrapped, tokenizer, (["<tool>", "a"],), {}) == 2
    assert tokenizers.added == {2: "<tool>"}
    assert tokenizers._adding(wrapped, tokenizer, (["<tool>"],), {}) == 0
    assert tokenizers.added == {2: "<tool>"}
