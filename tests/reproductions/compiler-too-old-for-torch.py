"""An operation is compiled by an older C++ standard than torch's headers need."""

import os
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

RANKS = 1

SOURCE = """
#include <Python.h>
#if __cplusplus < 201703L
#include <torch/all.h>
#endif
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "scale"};
PyMODINIT_FUNC PyInit_scale() { return PyModule_Create(&definition); }
"""

os.environ["TORCH_EXTENSIONS_DIR"] = os.getcwd()
Path("scale.cpp").write_text(SOURCE)
flags = [] if "--advised" in sys.argv else ["-std=c++14", "-Wfatal-errors"]
load("scale", ["scale.cpp"], extra_cflags=flags)
torch.ones(2, requires_grad=True).sum().backward()
