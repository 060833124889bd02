"""One file of a package comes from a later version than the other."""

import sys
from pathlib import Path

RANKS = 1

names = ["loss"] if "--advised" in sys.argv else ["loss", "loss_of_next_year"]
folder = Path("env/site-packages/trl")
folder.mkdir(parents=True)
(folder / "losses.py").write_text("loss = abs\n")
(folder / "__init__.py").write_text(f"from .losses import {', '.join(names)}\n")
sys.path.insert(0, str(folder.parent.resolve()))
__import__("trl")
