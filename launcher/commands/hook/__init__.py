"""The first folder on PYTHONPATH below `safe-launch wrap`; nothing imports it by name."""
