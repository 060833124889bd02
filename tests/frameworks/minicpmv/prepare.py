"""A tiny MiniCPM-V with random weights, pictures, and records with and without them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy
import torch
from frameworks.tiny import SENTENCES, save_tokenizer
from PIL import Image
from transformers import (
    MiniCPMV4_6Config,
    MiniCPMV4_6ForConditionalGeneration,
    Qwen3_5TextConfig,
)
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
    MiniCPMV4_6ImageProcessorPil,
)

HERE = Path(__file__).resolve().parent
PATCH = 4


def save_model(folder: Path) -> None:
    """Two layers of each kind of attention, and a tower of four with the merger in the middle."""
    tokenizer = save_tokenizer(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|image|>", "<|video|>"]})
    tokenizer.save_pretrained(folder)
    text = Qwen3_5TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        layer_types=["linear_attention", "full_attention"],
    )
    tower = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": PATCH,
    }
    config = MiniCPMV4_6Config(
        text_config=text.to_dict(),
        vision_config=tower,
        insert_layer_id=1,
        image_size=64,
        image_token_id=tokenizer.convert_tokens_to_ids("<|image|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video|>"),
    )
    torch.manual_seed(0)
    MiniCPMV4_6ForConditionalGeneration(config).save_pretrained(folder)
    images = MiniCPMV4_6ImageProcessorPil(scale_resolution=32, patch_size=PATCH)
    images.save_pretrained(folder)


def save_records(folder: Path, count: int = 64) -> None:
    """The same conversations about a picture and a video, and about nothing."""
    random = numpy.random.default_rng(7)
    (folder / "images").mkdir()
    rows = []
    for number in range(count):
        names = [f"images/{number}-{part}.png" for part in ("picture", "frame1", "frame2")]
        for name in names:
            pixels = random.integers(0, 256, (32, 48, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / name)
        answer = SENTENCES[(11 * number + 3) % 216]
        talk = [
            {"role": "user", "content": f"what of {SENTENCES[(7 * number) % 216]}"},
            {"role": "assistant", "content": answer},
        ]
        rows.append({"id": str(number), "image": names[:1], "video": names[1:]})
        rows[-1]["conversations"] = talk
    (folder / "pictures.json").write_text(json.dumps(rows))
    plain = [{"id": row["id"], "conversations": row["conversations"]} for row in rows]
    (folder / "texts.json").write_text(json.dumps(plain))


def main() -> None:
    folder = Path(sys.argv[1])
    save_model(folder / "model")
    save_records(folder)
    for name in ("finetune.py", "trainer.py"):
        shutil.copy(HERE / name, folder)
    stage2 = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    stage2 += '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}\n'
    (folder / "zero2.json").write_text(stage2)


if __name__ == "__main__":
    main()
