"""All cases of real frameworks; a new folder is added here."""

from __future__ import annotations

from frameworks.cases import Case
from frameworks.flagembedding import case as flagembedding
from frameworks.trl import case as trl

CASES: tuple[Case, ...] = (*flagembedding.CASES, *trl.CASES)
