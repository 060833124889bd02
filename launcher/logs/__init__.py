"""Logs of launchers and workers: bytes in, evidence of failures out."""
