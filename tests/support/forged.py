"""Messages between launchers with what no launcher says."""

from __future__ import annotations

import json
from collections.abc import Mapping

from safe_launch.core.plain_json import plain
from safe_launch.core.settings import Setting
from safe_launch.nodes.connection import encoded
from safe_launch.nodes.joining import RunStarted
from safe_launch.nodes.messages import Message, Order

RUN = "20260103-040506-789abc"
ORDER = Order(0, RUN, 1, (1, 1), 29_400, {Setting.ZERO_STAGE: 2}, {}, {})
STARTED = RunStarted(RUN, 1, 2)
Raw = Mapping[str, object]


def raw(message: Message, **changes: object) -> bytes:
    """A message as JSON, with other fields than its type allows."""
    content = json.loads(encoded(message))
    return json.dumps({**content, **changes}, default=plain).encode()
