"""Documents of JSON with something else in some places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document of JSON: what holds it, and its key there."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        yield content, key
        if isinstance(value, dict | list):
            yield from places(value)


@st.composite
def mutated(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """A sample in JSON with something else in some places, e.g. what is in others."""
    document = deepcopy(json.loads(draw(st.sampled_from(samples))))
    for _ in range(draw(st.integers(1, 3))):
        there = list(places(document))
        if there:
            holder, key = draw(st.sampled_from(there))
            others = st.sampled_from([one[place] for one, place in there])
            holder[key] = deepcopy(draw(JSON | others))
    return json.dumps(document).encode()
