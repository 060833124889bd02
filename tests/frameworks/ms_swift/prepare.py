"""What the cases of ms-swift train with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from frameworks.tiny import conversations, preferences, save_lines, save_qwen2

folder = Path(sys.argv[1])
save_qwen2(folder / "model")
save_lines(folder / "chats.jsonl", conversations())
save_lines(
    folder / "pairs.jsonl",
    (
        {
            "messages": [
                {"role": "user", "content": one["prompt"]},
                {"role": "assistant", "content": one["chosen"]},
            ],
            "rejected_response": one["rejected"],
        }
        for one in preferences()
    ),
)
shutil.copy(Path(__file__).with_name("rdrop.py"), folder)
