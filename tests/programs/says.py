"""Writes down for each rank what it was given, as JSON in `said-RANK`; `exit N` ends it with N."""

import json
import os
import sys

kept = ("PYTHONPATH", "SAFE_LAUNCH_PRESET", "SAFE_LAUNCH_WRAP_OPTIONS", "USERS_OWN")
told = {"argv": sys.argv, **{name: os.environ.get(name) for name in kept}}
told |= {"path": sys.path, "world": os.environ["WORLD_SIZE"]}
told["forgotten"] = [name for name in sys.modules if "sitecustomize" in name]
with open(f"said-{os.environ['RANK']}", "w") as file:
    json.dump(told, file)
if "exit" in sys.argv:
    sys.exit(int(sys.argv[-1]))
