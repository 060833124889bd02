"""Loading the catalogue: a launch reads all entries that it needs, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from safe_launch.catalogue import reader
from safe_launch.catalogue.reader import Catalogue, read_catalogue
from support.worlds import CURRENT

SHIPPED = read_catalogue()
OWN = """---
id: {id}
title: The storage of this cluster is full
role: initiating
class: user
signatures:
- message: "quota exceeded on /fast"
when: {{torch: ">=2.0"}}
---
## What happens

The quota of /fast is used up.

## What to do

Remove old checkpoints.
"""


@pytest.fixture
def own(tmp_path: Path) -> Sequence[reader.KnownFailure]:
    """A cluster's catalogue with one new entry and one that replaces a shipped entry."""
    for name in ("our-storage", "accelerator-out-of-memory"):
        (tmp_path / f"{name}.md").write_text(OWN.format(id=name))
    return read_catalogue(tmp_path)


def test_what_is_read_is_what_concerns_the_versions(own: Sequence[reader.KnownFailure]) -> None:
    """Both lists have the shipped entries first, then the cluster's."""
    known = Catalogue(own, CURRENT)
    concerned = [entry.id for entry in SHIPPED if reader.concerns(entry, CURRENT)]
    assert [entry.id for entry in known.entries] == [*concerned, *(entry.id for entry in own)]
    on_plans = {entry.id for entry in known.on_plans}
    assert on_plans < {entry.id for entry in known.entries}
    assert on_plans > {entry.id for entry in own}
    assert not {entry.id for entry in Catalogue(own, {"torch": "1.9"}).on_plans} & {"our-storage"}


def test_one_is_found_by_its_name(own: Sequence[reader.KnownFailure]) -> None:
    """The cluster's entries take precedence, and no name leads out of the folder."""
    known, shipped = Catalogue(own, CURRENT), Catalogue((), CURRENT)
    for entry in SHIPPED:
        assert (shipped.named(entry.id) is not None) == reader.concerns(entry, CURRENT), entry.id
    found = known.named("accelerator-out-of-memory")
    assert found is not None
    assert found.path == own[0].path
    for name in ("", "our-storages", "../failures/accelerator-out-of-memory"):
        assert known.named(name) is None
    assert Catalogue(own, {"torch": "1.9"}).named("our-storage") is None
