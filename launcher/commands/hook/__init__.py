"""A folder that stands first on PYTHONPATH below `safe-launch wrap`; nothing imports it by name."""
