"""A tiny language model, conversations and preferences, and a script of the user's own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from frameworks.tiny import conversations, preferences, save_lines, save_qwen2


def main() -> None:
    folder = Path(sys.argv[1])
    save_qwen2(folder / "model")
    for name, rows in (("conversations", conversations()), ("preferences", preferences())):
        (folder / name).mkdir()
        save_lines(folder / name / "train.jsonl", rows)
    shutil.copy(Path(__file__).with_name("train_dpo.py"), folder)
    stage2 = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    stage2 += '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}\n'
    (folder / "zero2.json").write_text(stage2)


if __name__ == "__main__":
    main()
