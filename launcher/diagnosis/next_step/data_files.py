"""Advises on a damaged file of the data, and on a runtime's internal check."""

from __future__ import annotations

import re

from .step import Case, Step

KINDS = (
    r"mp4|avi|mkv|mov|webm|m4v|flv|jpe?g|png|webp|gif|bmp|tiff?|wav|mp3|flac|ogg|parquet|arrow|jsonl?"
    r"|csv|tsv|tar|zip|gz|h5|hdf5|npy|npz|mdb|tfrecords?|bin|idx|pkl"
)
DATA = re.compile(rf"(?P<file>(?:[A-Za-z]:)?[\w./\\~+=@-]*[\w-]\.(?:{KINDS}))\b", re.IGNORECASE)
DAMAGED = re.compile(
    r"\bcorrupt(?:ed|ion)?\b|moov atom not found|Invalid data found when processing input"
    r"|(?:can(?:not|'t| not)|could ?n[o']t|could not|unable to|failed to|error) (?:be )?"
    r"(?:read|decod|open|load|identify|handle EOF|pars)\w*|truncated|premature end"
    r"|broken data stream|unexpected (?:EOF|end of)|not a (?:valid|gzip|zip)|损坏",
    re.IGNORECASE,
)
CHECK = re.compile(
    r"\b(?P<file>[\w/]+\.cc):\d+:?\s+(?:\(\w+\) )?(?:An unexpected system state|Check failed)"
)
RAY = re.compile(r"\bray::|\(raylet\)|/ray/_raylet|\bRayTaskError\b|\bray\.")


def damaged_file(case: Case) -> Step | None:
    """A file of the data that can't be read."""
    found = DATA.search(case.message) if DAMAGED.search(case.message) else None
    if found is None or case.is_users:
        return None
    return Step(
        f"Remove or replace {found['file']}, or have the data set skip samples that it can't read:"
        " this file is damaged or incomplete, mostly an interrupted download or copy. Try all files"
        " once before the training, as there may be more."
    )


def runtimes_check(case: Case) -> Step | None:
    """An internal check of Ray's."""
    if not CHECK.search(case.message) or not RAY.search(case.around):
        return None
    return Step(
        "Continue from the last checkpoint with another release of Ray, the newest or the one"
        " before (`pip install -U ray`): a check within Ray itself has failed, not one of the"
        " training."
    )
