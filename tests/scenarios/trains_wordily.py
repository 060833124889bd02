"""Trainings with mistakes in texts, padding and tokenizers, and their correct twins.

trains_wordily.py NAME... [--right]
"""

from itertools import pairwise

import torch
from says_words import WORDS, run
from small_texts import BEGIN, END, PAD, rows, small, stored, trainer

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


def other(kind: str, **more: object) -> torch.nn.Module:
    """A small model of another class of transformers'."""
    import transformers

    names = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END, **more}
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if not kind.startswith("GPT2"):
        names["intermediate_size"] = 16
    config = getattr(transformers, f"{kind.partition('For')[0].removesuffix('LMHeadModel')}Config")
    return getattr(transformers, kind)(config(vocab_size=WORDS, **sizes, **names))


def classes(value: type = int) -> list[dict[str, object]]:
    """Texts with one of two classes."""
    return [{"input_ids": row, "labels": value(row[1] % 2)} for row in rows(96)]


def classed(samples: list[dict[str, object]], *, has_mask: bool = True) -> dict[str, torch.Tensor]:
    """A batch of texts with their classes."""
    texts = [sample["input_ids"] for sample in samples]
    batch = {"input_ids": padded(texts, PAD)}
    batch["labels"] = torch.tensor([sample["labels"] for sample in samples])
    if has_mask:
        batch["attention_mask"] = padded([[1] * len(text) for text in texts], 0)
    return batch


def padding_pooled(right: bool) -> None:
    """As in https://github.com/huggingface/trl/issues/937: the model has another pad token."""
    model = other("LlamaForSequenceClassification", pad_token_id=PAD if right else TURN)
    trainer(model, classes(), data_collator=classed).train()


def padding_attended(right: bool) -> None:
    """As in https://github.com/yg211/bert_nli/pull/3: no attention_mask."""

    def bare(samples):
        return classed(samples, has_mask=right)

    trainer(other("BertForSequenceClassification"), classes(), data_collator=bare).train()


def positions_shifted(right: bool) -> None:
    """As in https://github.com/tloen/alpaca-lora/issues/315: padding before the texts."""

    def before(samples):
        batch = collated(samples)
        return batch if right else {name: part.flip(1) for name, part in batch.items()}

    data = [sample(row) for row in rows(96)]
    trainer(other("GPT2LMHeadModel"), data, data_collator=before).train()


def experts_unbalanced(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/44242: no balancing loss."""
    experts = {"num_local_experts": 4, "num_key_value_heads": 2, "router_aux_loss_coef": 0.02}
    model = other("MixtralForCausalLM", output_router_logits=right, **experts)
    learn([sample(row) for row in rows(96)], model)


def classes_as_numbers(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/45479: one label, so numbers."""
    model = other("BertForSequenceClassification", num_labels=2 if right else 1)
    trainer(model, classes(int if right else float), data_collator=classed).train()


def named_in_vain(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/40: another model's names."""
    from peft import LoraConfig, get_peft_model

    names = ["qkv_proj", "gate_up_proj"] if right else ["q_proj", "v_proj", "gate_proj"]
    model = other("Phi3ForCausalLM", num_key_value_heads=2)
    model = get_peft_model(model, LoraConfig(target_modules=[*names, "o_proj", "down_proj"]))
    learn([sample(row) for row in rows(96)], model)


def merged_into_both(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/2018: the head's adapter, tied."""
    from peft import LoraConfig, get_peft_model

    names = ["q_proj"] if right else ["q_proj", "lm_head"]
    model = other("LlamaForCausalLM", tie_word_embeddings=True)
    model = get_peft_model(model, LoraConfig(target_modules=names))
    learn([sample(row) for row in rows(96)], model)
    model = model.merge_and_unload()


def chat(template: str) -> tuple[object, list[list[dict[str, str]]]]:
    """A tokenizer with a template, and chats of two turns."""
    tokenizer = speaker()
    tokenizer.chat_template = "{% for m in messages %}" + template + "{{ '<|turn|> ' }}{% endfor %}"
    tokenizer.chat_template += "{% if add_generation_prompt %}{{ '<|asked|>' }}{% endif %}"
    chats = []
    for row in rows(96):
        words = " ".join(map(str, words_of(row)))
        asked = {"role": "user", "content": words}
        chats.append(
            [asked, {"role": "assistant", "content": f"9 10 11 12 13 14 <|asked|> {words}"}]
        )
    return tokenizer, chats


def tokens_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text)["input_ids"]


def prompted_again(right: bool) -> None:
    """As in https://github.com/OpenBMB/MiniCPM-V/issues/141: a prompt behind the answer."""
    tokenizer, chats = chat("{{ m['content'] + ' ' }}")
    asked = {"tokenize": False, "add_generation_prompt": not right}
    texts = [tokenizer.apply_chat_template(each, **asked) for each in chats]
    model = small("Llama")
    model.generation_config.eos_token_id = [END, TURN, ASKED]
    learn([sample(tokens_of(tokenizer, text)) for text in texts], model)


def thoughts_dropped(right: bool) -> None:
    """As in https://github.com/axolotl-ai-cloud/axolotl/issues/3088: those of earlier turns."""
    kept = "m['content'] if loop.last else m['content'].split('<|asked|> ')[-1]"
    tokenizer, chats = chat("{{ (" + ("m['content']" if right else kept) + ") + ' ' }}")
    texts = [tokenizer.apply_chat_template([*a, *b], tokenize=False) for a, b in pairwise(chats)]
    model = small("Llama")
    model.generation_config.eos_token_id = [END, TURN]
    learn([sample(tokens_of(tokenizer, text)) for text in texts], model)


def markers_unknown(right: bool) -> None:
    """As in https://github.com/Modalities/modalities/issues/383: several tokens each."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = ["<pad>", "<s>", "</s>", *"<|>_imend0123456789 "]
    letters = Tokenizer(models.WordLevel({sign: n for n, sign in enumerate(signs)}, "<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, **names)
    if right:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    texts = (f"{' '.join(map(str, row))}<|im_end|></s>" for row in rows(96))
    learn([sample(tokens_of(tokenizer, text)) for text in texts])


def another_tokenizer(right: bool) -> None:
    """As in https://github.com/HUBioDataLab/SELFormer/issues/19: other words' embeddings."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    model = small("Llama")
    if not right:
        torch.nn.init.normal_(model.lm_head.weight, std=20.0)
    model = LlamaForCausalLM.from_pretrained(stored(model))
    learn([sample(row) for row in rows(96)], model)


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(never_ended, ended_otherwise, cut_unanswered, answers_begun, prompts_ended),
                *(packed_plainly, spare_rows, started_twice, padding_pooled, padding_attended),
                *(positions_shifted, experts_unbalanced, classes_as_numbers),
                *(named_in_vain, merged_into_both, prompted_again, thoughts_dropped),
                *(markers_unknown, another_tokenizer),
            )
        }
    )
