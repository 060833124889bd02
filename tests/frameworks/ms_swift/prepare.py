"""What the cases of ms-swift train with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from frameworks.ms_swift.slam import Slam
from frameworks.tiny import conversations, preferences, save_lines, save_qwen2

draw = np.random.default_rng(0)
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
save_qwen2(folder / "slam", Slam)
# For all samples of the first two steps, half of each rank's in the next two, none of the last.
chats = conversations()
for number, chat in enumerate(chats):
    if number < 8 or (number < 16 and number // 2 % 2 == 0):
        np.save(folder / f"{number}.npy", draw.standard_normal((12, 8), np.float32))
        chat["messages"][0]["content"] = "<audio>" + chat["messages"][0]["content"]
        chat["audios"] = [f"{number}.npy"]
save_lines(folder / "recordings.jsonl", chats)
for plugin in ("rdrop.py", "slam.py"):
    shutil.copy(Path(__file__).with_name(plugin), folder)
