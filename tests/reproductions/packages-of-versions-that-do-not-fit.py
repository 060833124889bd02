"""A package that was written for another transformers is imported."""

import sys
from pathlib import Path

RANKS = 1

name = "AutoConfig" if "--advised" in sys.argv else "AutoConfigOfNextYear"
folder = Path("env/site-packages/newer_than_transformers")
folder.mkdir(parents=True)
(folder / "__init__.py").write_text(f"from transformers import {name}\n")
sys.path.insert(0, str(folder.parent.resolve()))
__import__(folder.name)
