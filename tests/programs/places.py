"""Prints where a launcher that is started here would stand among those of its job."""

import json
import os
from dataclasses import asdict

from safe_launch.core.errors import LaunchError
from safe_launch.schedulers.read_placement import placement_of
from safe_launch.schedulers.this_host import this_host

try:
    placement = placement_of({}, None, os.environ, this_host())
    print(json.dumps({**asdict(placement), "host": os.uname().nodename}))
except LaunchError as error:
    print(json.dumps({"problem": error.problem}))
