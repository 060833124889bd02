"""An operation is linked with a CUDA library that the linker doesn't find."""

import os
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

RANKS = 1

SOURCE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "scale"};
PyMODINIT_FUNC PyInit_scale() { return PyModule_Create(&definition); }
"""

os.environ["TORCH_EXTENSIONS_DIR"] = os.getcwd()
Path("scale.cpp").write_text(SOURCE)
libraries = [] if "--advised" in sys.argv else ["-lcurand"]
load("scale", ["scale.cpp"], extra_ldflags=libraries, verbose=True)
torch.ones(2, requires_grad=True).sum().backward()
