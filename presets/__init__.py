"""Named presets, and in `failures/` the known failures, as data."""
