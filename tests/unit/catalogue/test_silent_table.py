"""docs/measured/silent.yaml has every silent entry and how it is known."""

from __future__ import annotations

import re

import yaml
from safe_launch.catalogue.entry import Kind
from safe_launch.catalogue.reader import read_catalogue
from support.pages.catalogue import silent_page
from support.stacks import ROOT

MEASURED = ROOT / "docs" / "measured"
GROUPS = yaml.safe_load((MEASURED / "silent.yaml").read_text(encoding="utf-8"))
ROWS = [row for group in GROUPS for row in group["rows"]]
ENTRIES = {entry.id: entry for entry in read_catalogue()}
KINDS = {"reproduced": "reproduced", "read in source": "read in source"}
"""The beginning of a row with a silent entry, and its entry's best proof."""


def test_the_page_is_up_to_date() -> None:
    """scripts/catalogue-docs updates it."""
    told = (MEASURED / "silent.md").read_text(encoding="utf-8")
    assert told == silent_page(GROUPS), "run scripts/catalogue-docs"


def test_it_has_every_silent_entry() -> None:
    """The table has no other names."""
    named = {name for row in ROWS for name in row["entries"]}
    silent = {name for name, entry in ENTRIES.items() if entry.kind is Kind.SILENT}
    assert named <= set(ENTRIES)
    assert silent <= named


def test_a_row_is_known_as_its_entry_is() -> None:
    """The strongest proof counts; failures that raise or go unreported have no silent entry."""
    for row in ROWS:
        silent = [ENTRIES[name] for name in row["entries"] if ENTRIES[name].kind is Kind.SILENT]
        begins = next((kind for kind in KINDS if row["known"].startswith(kind)), None)
        assert (begins is not None) is bool(silent), row
        assert begins is not None or row["known"].startswith(("raises", "not told:")), row
        assert all(entry.confidence == begins for entry in silent), row


def test_the_tests_that_it_names_name_the_entry() -> None:
    """Each named training test contains the entry's id."""
    for row in ROWS:
        for path in re.findall(r"tests/\S+\.py", row["known"]):
            text = (ROOT / path).read_text(encoding="utf-8")
            assert all(name in text for name in row["entries"]), row


def test_what_mends_it_ends_the_range() -> None:
    """If an entry's version range ends, the row names the same release."""
    for row in ROWS:
        for name in row["entries"]:
            if ENTRIES[name].kind is Kind.SILENT and re.fullmatch(r"[\d.]+", row["mended"]):
                ends = re.findall(r"<([\d.]+)", " ".join(ENTRIES[name].when.values()))
                assert row["mended"] in ends, (row, ends)
