"""The files for clusters that `safe-launch template` fills in; only they are installed."""
