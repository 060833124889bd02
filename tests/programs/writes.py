"""Writes where torch and Python's libraries do: temporary files, and torch's extensions."""

import os
import tempfile

from torch.utils.cpp_extension import _get_build_directory

with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
folder = _get_build_directory("operation", False)
with open(os.path.join(folder, "lock"), "w") as file:
    file.write("x")
print(f"uid {os.getuid()} builds in {folder}", flush=True)
