"""Fine-tunes MiniCPM-V 4.6 as transformers has it, with the arguments of upstream's own script.

A record has a conversation, and pictures and frames of a video that its first question is about.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch.utils.data import Dataset
from trainer import CPMTrainer
from transformers import (
    AutoTokenizer,
    HfArgumentParser,
    MiniCPMV4_6ForConditionalGeneration,
    TrainingArguments,
    set_seed,
)
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
    MiniCPMV4_6ImageProcessorPil,
)

IMAGE, VIDEO = "<|image|>", "<|video|>"


@dataclass
class ModelArguments:
    """The model."""

    model_name_or_path: str = "openbmb/MiniCPM-V-4_6"


@dataclass
class DataArguments:
    """The records."""

    data_path: str | None = None


@dataclass
class TuningArguments(TrainingArguments):
    """What is trained, and how long and how finely cut its input may be."""

    model_max_length: int = 2048
    max_slice_nums: int = 9
    tune_vision: bool = True
    tune_llm: bool = True
    llm_type: str = "qwen"
    use_lora: bool = False


@dataclass
class LoraArguments:
    """The adapters."""

    lora_r: int = 64
    lora_alpha: int = 64
    lora_dropout: float = 0.05
    lora_target_modules: str = r".*language_model\.layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj)"
    lora_modules_to_save: list[str] = field(default_factory=lambda: ["merger"])


class Records(Dataset):
    """Conversations as tokens, and what they are about as patches."""

    def __init__(self, path: Path, tokenizer: Any, images: Any, length: int) -> None:
        self.folder = path.parent
        self.rows = json.loads(path.read_text())
        self.tokenizer, self.images, self.length = tokenizer, images, length

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        parts: dict[str, Any] = {}
        marks = ""
        for mark, key, paths in (
            (IMAGE, "", row.get("image", [])),
            (VIDEO, "_videos", row.get("video", [])),
        ):
            if paths:
                seen = self.images([Image.open(self.folder / path) for path in paths])
                parts[f"pixel_values{key}"] = torch.as_tensor(seen["pixel_values"]).float()
                parts[f"target_sizes{key}"] = torch.as_tensor(seen["target_sizes"])
                # Two mergers make one token of four by four patches.
                tokens = int((parts[f"target_sizes{key}"] // 4).prod(dim=1).sum())
                marks += mark * tokens
        ids: list[int] = []
        labels: list[int] = []
        for number, turn in enumerate(row["conversations"]):
            head = f"<|im_start|>{turn['role']}\n" + (marks if number == 0 else "")
            asked = self.tokenizer.encode(head, add_special_tokens=False)
            said = self.tokenizer.encode(turn["content"] + "<|im_end|>", add_special_tokens=False)
            ids += asked + said
            ignored = [-100] * len(said)
            labels += [-100] * len(asked) + (said if turn["role"] == "assistant" else ignored)
        return {"input_ids": ids[: self.length], "labels": labels[: self.length], **parts}


def batch_of(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows of one length; all pictures' patches one after the other, as the tower takes them."""

    def padded(name: str, filler: int) -> torch.Tensor:
        tensors = [torch.tensor(row[name]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=filler)

    ids = padded("input_ids", 0)
    mask = padded("labels", -1) != -1
    batch = {"input_ids": ids, "labels": padded("labels", -100), "attention_mask": mask.long()}
    for key in ("", "_videos"):
        if any(f"pixel_values{key}" in row for row in rows):
            with_pictures = [row for row in rows if f"pixel_values{key}" in row]
            for name, dimension in ((f"pixel_values{key}", -1), (f"target_sizes{key}", 0)):
                batch[name] = torch.cat([row[name] for row in with_pictures], dim=dimension)
    return batch


def main() -> None:
    parser = HfArgumentParser((ModelArguments, DataArguments, TuningArguments, LoraArguments))
    model_args, data, training, lora = parser.parse_args_into_dataclasses()
    training.remove_unused_columns = False
    set_seed(training.seed)
    folder = model_args.model_name_or_path
    model = MiniCPMV4_6ForConditionalGeneration.from_pretrained(folder)
    if not training.tune_vision:
        model.model.vision_tower.requires_grad_(False)
    if not training.tune_llm:
        model.model.language_model.requires_grad_(False)
    if training.use_lora:
        model = get_peft_model(
            model,
            LoraConfig(
                r=lora.lora_r,
                lora_alpha=lora.lora_alpha,
                lora_dropout=lora.lora_dropout,
                target_modules=lora.lora_target_modules,
                modules_to_save=lora.lora_modules_to_save,
            ),
        )
        if training.gradient_checkpointing:
            model.enable_input_require_grads()
    images = MiniCPMV4_6ImageProcessorPil.from_pretrained(
        folder, max_slice_nums=training.max_slice_nums
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    records = Records(Path(data.data_path), tokenizer, images, training.model_max_length)
    trainer = CPMTrainer(model, training, train_dataset=records, data_collator=batch_of)
    trainer.train()


if __name__ == "__main__":
    main()
