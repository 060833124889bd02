"""Trainings whose loss, masks or dropout aren't what they are meant to be, and their correct twins.

trains_mistakenly.py NAME... [--right]
"""

from itertools import count

import torch
from says_words import STEPS, WORDS, adam, batches, run
from small_texts import PAD
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from trains_commonly import Regression, fit, numbered_batches, padded_batches


class Classes(nn.Module):
    """Six classes for each sample."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(16, 6)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(torch.relu(self.first(values))))


def class_of(values: torch.Tensor) -> torch.Tensor:
    return values[:, :6].argmax(1)


def taught_by_probabilities(right: bool) -> None:
    """As in https://github.com/microsoft/ProDA/issues/43: kl_div of a softmax."""
    model, teacher = DistributedDataParallel(Classes()), Classes().eval()

    def loss_of(model, batch):
        with torch.no_grad():
            known = teacher(batch[0]).softmax(-1)
        made = model(batch[0])
        made = made.log_softmax(-1) if right else made.softmax(-1)
        return functional.kl_div(made, known, reduction="batchmean")

    fit(model, adam(model), loss_of, numbered_batches())


def without_logarithm(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/12703: NLLLoss of a model's output."""
    model, criterion = DistributedDataParallel(Classes()), nn.NLLLoss()

    def loss_of(model, batch):
        made = model(batch[0])
        return criterion(made.log_softmax(-1) if right else made, class_of(batch[0]))

    fit(model, adam(model), loss_of, numbered_batches())


def masks_of_bytes(right: bool) -> None:
    """As in https://github.com/milesial/Pytorch-UNet/issues/78: masks of 0 and 255."""
    model, criterion = DistributedDataParallel(Classes()), nn.BCEWithLogitsLoss()

    def loss_of(model, batch):
        mask = (batch[0][:, :6] > 0) * (1.0 if right else 255.0)
        return criterion(model(batch[0]), mask)

    fit(model, adam(model), loss_of, numbered_batches())


class Reader(nn.Module):
    """Predicts the next word of texts with padding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.cell = nn.GRU(16, 16, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.cell(self.embedding(words))[0]))


def answers(length: int) -> torch.Tensor:
    """Texts of a length, with padding behind."""
    words = torch.randint(PAD + 1, WORDS, (4, 12))
    words[:, length:] = PAD
    return words


def weighed_unlike(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/34242: means of micro batches."""
    model = DistributedDataParallel(Reader())
    optimizer = adam(model)
    torch.manual_seed(torch.distributed.get_rank())
    for _ in range(STEPS):
        micro = [answers(4), answers(12)]
        total = sum(int((words[:, 1:] != PAD).sum()) for words in micro)
        for words in micro:
            made, labels = model(words[:, :-1]).transpose(1, 2), words[:, 1:]
            if right:
                loss = functional.cross_entropy(made, labels, ignore_index=PAD, reduction="sum")
                loss = loss / total
            else:
                loss = functional.cross_entropy(made, labels, ignore_index=PAD) / len(micro)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def divided_by_all(right: bool) -> None:
    """As in https://github.com/d2l-ai/d2l-en/issues/2076: the mean counts padding."""
    model = DistributedDataParallel(Reader())

    def loss_of(model, words):
        made, labels = model(words[:, :-1]).transpose(1, 2), words[:, 1:]
        each = functional.cross_entropy(made, labels, ignore_index=PAD, reduction="none")
        return each.sum() / (labels != PAD).sum() if right else each.mean()

    torch.manual_seed(torch.distributed.get_rank())
    fit(model, adam(model), loss_of, (answers(4 + 3 * place % 8) for place in count()))


class Attentive(nn.Module):
    """Looks at a text's other words, with dropout that may not know the mode."""

    def __init__(self, *, knows_mode: bool) -> None:
        super().__init__()
        self.knows_mode = knows_mode
        self.embedding = nn.Embedding(WORDS, 16)
        self.projection = nn.Linear(16, 48)
        self.head = nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        parts = self.projection(self.embedding(words))[:, None].chunk(3, -1)
        dropout = 0.2 if self.training or not self.knows_mode else 0.0
        made = functional.scaled_dot_product_attention(*parts, is_causal=True, dropout_p=dropout)
        return self.head(made[:, 0])


def evaluated_by_chance(right: bool) -> None:
    """As in https://github.com/karpathy/nanoGPT/issues/240: attention drops in evaluation."""
    model = DistributedDataParallel(Attentive(knows_mode=right))
    optimizer = adam(model)

    def loss_of(model, words):
        return functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    for _ in range(2):
        fit(model, optimizer, loss_of, batches())
        model.eval()
        with torch.no_grad():
            loss_of(model, next(batches()))
        model.train()


def taught_by_chance(right: bool) -> None:
    """As in https://github.com/vrvlive/knowlege-distillation/issues/2: a teacher in train mode."""
    model = DistributedDataParallel(Classes())
    teacher = Classes(0.5).requires_grad_(requires_grad=False).train(not right)

    def loss_of(model, batch):
        with torch.no_grad():
            known = teacher(batch[0])
        return functional.mse_loss(model(batch[0]), known)

    fit(model, adam(model), loss_of, numbered_batches())


def compared_by_chance(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/744: old probabilities with dropout."""
    model = DistributedDataParallel(Reader(0.0 if right else 0.2))

    def of(words):
        made = model(words[:, :-1]).log_softmax(-1)
        return made.gather(-1, words[:, 1:, None])[..., 0]

    def loss_of(_model, words):
        with torch.no_grad():
            old = of(words)
        return -((of(words) - old).exp() * (words[:, 1:] % 2 - 0.5)).mean()

    fit(model, adam(model), loss_of, batches())


class Recomputed(Regression):
    """A number for each sample, by a block that is computed twice."""

    def __init__(self, *, keeps_state: bool) -> None:
        super().__init__()
        self.keeps_state = keeps_state
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        state = {"preserve_rng_state": self.keeps_state}
        return super().forward(checkpoint(self.block, values, use_reentrant=False, **state))


def recomputed_by_chance(right: bool) -> None:
    """As in https://github.com/openai/guided-diffusion/issues/167: dropout is drawn again."""
    model = DistributedDataParallel(Recomputed(keeps_state=right))

    def loss_of(model, batch):
        return functional.mse_loss(model(batch[0]).squeeze(-1), batch[1])

    fit(model, adam(model), loss_of, numbered_batches())


class Attending(nn.Module):
    """The class, or the next words, of padded texts, by attention."""

    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16, padding_idx=PAD)
        self.layer = nn.TransformerEncoderLayer(16, 2, 16, 0.0, batch_first=batch_first)
        self.head = nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor, mask=None, padding=None) -> torch.Tensor:
        values = self.layer(self.embedding(words), mask, src_key_padding_mask=padding)
        return self.head(values)


def next_words(made: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(made.transpose(1, 2), words[:, 1:], ignore_index=PAD)


def attending_over_batch(right: bool) -> None:
    """As in https://github.com/Exorust/TorchLeet/issues/5: batch_first is left out."""
    model = DistributedDataParallel(Attending(batch_first=right))

    def loss_of(model, words):
        return functional.cross_entropy(model(words)[:, 0], words[:, 3])

    fit(model, adam(model), loss_of, batches())


def running_over_batch(right: bool) -> None:
    """As in https://github.com/HHTseng/video-classification/issues/42: an LSTM over samples."""
    reader = Reader()
    reader.cell = nn.LSTM(16, 16, batch_first=right)
    model = DistributedDataParallel(reader)

    def loss_of(model, words):
        return functional.cross_entropy(model(words)[:, -1], words[:, 3])

    fit(model, adam(model), loss_of, batches())


def seeing_ahead(right: bool) -> None:
    """As in https://github.com/karpathy/minGPT/issues/75: attention without a causal mask."""
    model = DistributedDataParallel(Attending())
    mask = nn.Transformer.generate_square_subsequent_mask(7) if right else None

    def loss_of(model, words):
        return next_words(model(words[:, :-1], mask), words)

    fit(model, adam(model), loss_of, batches())


def seeing_padding(right: bool) -> None:
    """As in https://github.com/hyunwoongko/transformer/issues/40: an inverted mask."""
    model = DistributedDataParallel(Attending())

    def loss_of(model, words):
        is_padding = words == PAD
        made = model(words, padding=is_padding if right else ~is_padding)
        return functional.cross_entropy(made[:, 0], words[:, 0])

    fit(model, adam(model), loss_of, padded_batches())


class Pooled(nn.Module):
    """The class of a text, by a weighed mean of its words."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.embedding, self.score = nn.Embedding(WORDS, 16), nn.Linear(16, 1)
        self.head = nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        values = self.embedding(words)
        return self.head((self.score(values).softmax(self.dim) * values).sum(1))


def weighed_over_batch(right: bool) -> None:
    """As in https://github.com/fastnlp/fastNLP/issues/254: a softmax over the samples."""
    model = DistributedDataParallel(Pooled(1 if right else 0))

    def loss_of(model, words):
        return functional.cross_entropy(model(words), words[:, 3])

    fit(model, adam(model), loss_of, batches())


class Matching(nn.Module):
    """Learns which answer fits a question, among the batch's others."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)

    def forward(self, questions: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        left, right = self.embedding(questions).mean(1), self.embedding(answers).mean(1)
        return functional.cross_entropy(left @ right.T, torch.arange(len(left)))


def matched_twice(right: bool) -> None:
    """As in https://github.com/FlagOpen/FlagEmbedding/issues/353: an answer comes twice."""
    model = DistributedDataParallel(Matching())

    def loss_of(model, words):
        answers = words if right else words[torch.tensor([0, 0, 1, 2])]
        return model(words.roll(1, 1), answers)

    fit(model, adam(model), loss_of, batches())


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(taught_by_probabilities, without_logarithm, masks_of_bytes, weighed_unlike),
                *(divided_by_all, evaluated_by_chance, taught_by_chance, compared_by_chance),
                *(recomputed_by_chance, attending_over_batch, running_over_batch, seeing_ahead),
                *(seeing_padding, weighed_over_batch, matched_twice),
            )
        }
    )
