"""axolotl."""

from __future__ import annotations

from .framework import FrameworkRow

AXOLOTL = FrameworkRow(
    "axolotl",
    ("axolotl",),
    "axolotl-ai-cloud/axolotl",
    in_log=r"axolotl/",
    on_trainer=True,
)
