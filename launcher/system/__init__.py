"""Boundaries of a launcher's process: terminal, typed files, run directory, signals, orphans.

In: text, paths and process ids. Out: lines on the terminal, values read from YAML and JSON, files.
"""
