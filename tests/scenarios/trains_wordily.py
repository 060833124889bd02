"""Trainings with mistakes in texts, padding and tokenizers, and their correct twins.

trains_wordily.py NAME... [--right]
"""

import torch
from says_words import WORDS, run
from small_texts import BEGIN, END, PAD, rows, small, trainer

TURN, ASKED = 3, 4
"""Special tokens that end a turn, and a question."""


def speaker(**more: object):
    """A tokenizer of these texts, whose words are numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<s>", "</s>", "<|turn|>", "<|asked|>"]
    words = [*names, *map(str, range(len(names), WORDS - 4))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    asked = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", **more}
    special = names[3:]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=special, **asked
    )


def words_of(row: list[int]) -> list[int]:
    """A text without its ends, and without special tokens."""
    return [max(word, ASKED + 1) for word in row[1:-1]]


def padded(values: list[list[int]], value: int) -> torch.Tensor:
    length = max(map(len, values))
    return torch.tensor([row + [value] * (length - len(row)) for row in values])


def collated(samples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """A batch with padding behind."""
    ids = padded([sample["input_ids"] for sample in samples], PAD)
    mask = padded([[1] * len(sample["input_ids"]) for sample in samples], 0)
    labels = padded([sample["labels"] for sample in samples], -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def sample(text: list[int], asked: int = 0) -> dict[str, list[int]]:
    """A text whose labels count behind the question."""
    return {"input_ids": text, "labels": [-100] * asked + text[asked:]}


def learn(data: list[dict[str, list[int]]], model=None, **more: object) -> None:
    """Trains on the samples."""
    model = small("Llama") if model is None else model
    trainer(model, data, data_collator=collated, **more).train()


def never_ended(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/1623: no end in any text."""
    learn([sample(row if right else row[:-1]) for row in rows(96)])


def ended_otherwise(right: bool) -> None:
    """As in https://github.com/hiyouga/LlamaFactory/issues/7454: a template's end of a turn."""
    tokenizer, model = speaker(), small("Llama")
    if right:
        model.generation_config.eos_token_id = [END, TURN]
    data = [sample([*words_of(row), TURN]) for row in rows(96)]
    learn(data, model, processing_class=tokenizer)


def cut_unanswered(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/5662: long prompts leave no answers."""
    data = []
    for place, row in enumerate(rows(96)):
        question = [BEGIN, *words_of(row) * (4 if place % 3 == 0 else 1), ASKED]
        text = sample([*question, *words_of(row), END], len(question))
        length = None if right else 11
        data.append({name: values[:length] for name, values in text.items()})
    learn(data)


def answers_begun(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/1073: the answer's own start."""
    data = []
    for row in rows(96):
        question = [BEGIN, *words_of(row), ASKED]
        answer = [*words_of(row), END]
        data.append(sample(question + (answer if right else [BEGIN, *answer]), len(question)))
    learn(data)


def prompts_ended(right: bool) -> None:
    """As in https://github.com/huggingface/trl/pull/1591: the tokenizer ends the prompt too."""
    data = []
    for row in rows(96):
        question = [BEGIN, *words_of(row), *([] if right else [END])]
        data.append(sample([*question, *words_of(row), END], len(question)))
    learn(data)


def packed_plainly(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/1230: nothing keeps the texts apart."""

    def packed(samples):
        batch = collated(samples)
        if right:
            batch["position_ids"] = padded([each["position_ids"] for each in samples], 0)
            del batch["attention_mask"]
        return batch

    texts = [[ASKED, *words_of(row), TURN, *words_of(row), END] for row in rows(480)]
    data = []
    for place in range(0, len(texts), 5):
        row = {"input_ids": [], "labels": [], "position_ids": []}
        for text in texts[place : place + 5]:
            part = {**sample(text, text.index(TURN) + 1), "position_ids": [*range(len(text))]}
            row = {name: (values + part[name])[:48] for name, values in row.items()}
        data.append(row)
    trained = trainer(
        small("Llama"), data, data_collator=packed, asked={"remove_unused_columns": False}
    )
    trained.train()


def spare_rows(right: bool) -> None:
    """As in https://github.com/unslothai/unsloth/issues/915: no resize, as there are rows left."""
    from peft import LoraConfig, get_peft_model

    tokenizer = speaker()
    tokenizer.add_tokens(["<tool>"])
    tool = tokenizer.convert_tokens_to_ids("<tool>")
    kept = {"modules_to_save": ["embed_tokens", "lm_head"]} if right else {}
    model = get_peft_model(small("Llama"), LoraConfig(target_modules=["q_proj"], **kept))
    data = [sample([tool, *words_of(row), END]) for row in rows(96)]
    learn(data, model, processing_class=tokenizer)


def started_twice(right: bool) -> None:
    """As in https://github.com/huggingface/blog/pull/1949: the start is compared with the bos."""
    model = small("T5")
    model.config.decoder_start_token_id = TURN
    data = []
    for row in rows(96):
        labels = [*words_of(row), END]
        data.append({"input_ids": row, "labels": labels if right else [TURN, *labels]})
    learn(data, model)


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(never_ended, ended_otherwise, cut_unanswered, answers_begun, prompts_ended),
                *(packed_plainly, spare_rows, started_twice),
            )
        }
    )
