"""All cases of real frameworks; a new folder is added here."""

from __future__ import annotations

from frameworks.cases import Case

CASES: tuple[Case, ...] = ()
