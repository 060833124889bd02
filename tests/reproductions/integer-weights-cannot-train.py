"""All parameters are unfrozen, those that are quantized to 8 bits too."""

import sys

import torch


class Quantized(torch.nn.Module):
    """A projection in 8 bits, and a head."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randint(-127, 128, (8, 8), dtype=torch.int8)
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The head's values of the projection."""
        return self.head(batch @ (self.weight.to(batch.dtype) / 127))


RANKS = 1
model = Quantized()
for parameter in model.parameters():
    if parameter.is_floating_point() or "--advised" not in sys.argv:
        parameter.requires_grad_(True)
trained = [one for one in model.parameters() if one.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
