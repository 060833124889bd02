"""What the cases of LLaMA-Factory train with: a model, its register of data, and the YAML files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from frameworks.tiny import conversations, save_lines, save_qwen2

TRAINING = """\
model_name_or_path: model
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: chats
template: qwen
cutoff_len: 256
overwrite_cache: true
output_dir: out
overwrite_output_dir: true
logging_steps: 1
save_strategy: "no"
per_device_train_batch_size: 2
gradient_accumulation_steps: 1
learning_rate: 1.0e-2
max_steps: 6
use_cpu: true
report_to: none
"""
STAGE_2 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 2, "overlap_comm": False, "contiguous_gradients": True},
}
CHATS = {
    "file_name": "chats.jsonl",
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
    },
}

folder = Path(sys.argv[1])
save_qwen2(folder / "model")
(folder / "data").mkdir()
save_lines(folder / "data" / "chats.jsonl", conversations())
(folder / "data" / "dataset_info.json").write_text(json.dumps({"chats": CHATS}))
(folder / "zero2.json").write_text(json.dumps(STAGE_2))
(folder / "zero2.yaml").write_text(TRAINING + "deepspeed: zero2.json\n")
(folder / "ddp.yaml").write_text(TRAINING)
(folder / "ddp_unused.yaml").write_text(TRAINING + "ddp_find_unused_parameters: true\n")
