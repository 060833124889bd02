"""A launcher for distributed fine-tuning that corrects the known failures of a run.

A training script may read the preset that it runs under::

    import safe_launch

    preset = safe_launch.current_preset()
    if preset is not None and preset.micro_batch is not None:
        loader = DataLoader(data, batch_size=preset.micro_batch)
"""

from .core.preset import Preset, current_preset
from .core.version import VERSION

__all__ = ["Preset", "current_preset"]
__version__ = VERSION
