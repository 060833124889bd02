"""docs/using/failures.md is up to date and states correctly how each entry is proved."""

from __future__ import annotations

import re

import pytest
from safe_launch.catalogue.entry import PROOFS, KnownFailure
from safe_launch.catalogue.reader import PACKED, packed, read_catalogue
from safe_launch.catalogue.regex import plain
from support.pages.catalogue import page
from support.stacks import ROOT
from support.tables import table

CATALOGUE = read_catalogue()
SCRIPTS = {path.stem for path in (ROOT / "tests" / "reproductions").glob("*.py")}


def test_the_page_is_up_to_date() -> None:
    """scripts/catalogue-docs updates it."""
    told = (ROOT / "docs" / "using" / "failures.md").read_text(encoding="utf-8")
    assert told == page(CATALOGUE, SCRIPTS), "run scripts/catalogue-docs"


def test_the_packed_entries_are_up_to_date() -> None:
    """scripts/catalogue-docs updates them."""
    folder = ROOT / "presets" / "failures"
    told = folder.with_name(PACKED).read_text(encoding="utf-8")
    assert told == packed(folder), "run scripts/catalogue-docs"


def test_every_link_of_the_page_leads_somewhere() -> None:
    """Links lead to entries, scripts and documents."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page(CATALOGUE, SCRIPTS))
    assert len(links) > len(CATALOGUE)
    for link in set(links):
        assert (ROOT / "docs" / "using" / link).exists(), link


@table("entry", CATALOGUE, name=lambda entry: entry.id)
def test_every_proof_says_of_which_kind_it_is(entry: KnownFailure) -> None:
    """Each proof begins with its kind and names a script exactly if there is one."""
    assert entry.proof
    for proof in entry.proof:
        assert proof.startswith(PROOFS), proof
        for script in re.findall(r"tests/reproductions/([\w-]+)\.py", proof):
            assert proof.startswith("reproduced")
            assert script in SCRIPTS, script
    if entry.id in SCRIPTS:
        assert entry.confidence == "reproduced"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (
            r"Expected to mark a variable ready only once\.",
            ("Expected to mark a variable ready only once.",),
        ),
        (r"^The parameter \S+ has", ("The parameter … has",)),
        (r"\d+ != \d+ Cannot", ("N != N Cannot",)),
        (r"got \[0\] but", ("got [0] but",)),
        (r"(CUDA|HIP) out of memory", ("CUDA/HIP out of memory",)),
        (r"out of|no more memory", ("out of", "no more memory")),
        (r"validation errors? for", ("validation error(s) for",)),
        (r"in .?prepare\(\).? when", ("in prepare() when",)),
        (r"(^|\] |kernel: )Out of memory: Kill(ed)? process", ("Out of memory: Kill(ed) process",)),
        (r"a (x y|z) b", ("a (x y | z) b",)),
        (r"^(was lost|is gone)$", ("was lost", "is gone")),
        (r"(?i:failed to recv), got", ("failed to recv, got",)),
        (r"'\w+' object.*has [Nn]o [^>]* at", ("'…' object…has No … at",)),
        (r"rank [0-9]+ of \d{1,3}\s+died", ("rank N of N died",)),
        (r"Your setup doesn.t support", ("Your setup doesn't support",)),
        (r"^$", ()),
    ],
)
def test_patterns_in_plain_words(pattern: str, expected: tuple[str, ...]) -> None:
    """A pattern is shown as a person would write the message."""
    assert plain(pattern) == expected


@table("entry", CATALOGUE, name=lambda entry: entry.id)
def test_every_pattern_of_the_catalogue_can_be_told(entry: KnownFailure) -> None:
    """All regex syntax in use can be put in plain words."""
    for signature in entry.signatures:
        for pattern in (signature.message, signature.log, signature.source, signature.context):
            if pattern is not None:
                assert all("\\" not in text for text in plain(pattern.pattern))
