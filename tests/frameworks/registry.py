"""All cases of real frameworks; a new folder is added here."""

from __future__ import annotations

from frameworks.accelerate import case as accelerate
from frameworks.cases import Case
from frameworks.flagembedding import case as flagembedding
from frameworks.lightning import case as lightning
from frameworks.llama_factory import case as llama_factory
from frameworks.minicpmv import case as minicpmv
from frameworks.ms_swift import case as ms_swift
from frameworks.trl import case as trl

CASES: tuple[Case, ...] = (
    *ms_swift.CASES,
    *llama_factory.CASES,
    *flagembedding.CASES,
    *trl.CASES,
    *accelerate.CASES,
    *lightning.CASES,
    *minicpmv.CASES,
)
