"""Features are prepared with a name that NumPy 2 has no more."""

import sys

import numpy
import torch

RANKS = 1

kind = numpy.float64 if "--advised" in sys.argv else numpy.float_
features = torch.from_numpy(numpy.ones((2, 4), dtype=kind)).float()
torch.nn.Linear(4, 4)(features).sum().backward()
