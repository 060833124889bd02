"""A head takes no part in the loss, and ZeRO was told not to ignore that."""

import sys

import deepspeed
import torch


class Model(torch.nn.Module):
    """A body, and two heads of which only one is used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)
        self.spare = torch.nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The prediction of the first head."""
        return self.head(self.body(batch))


model = Model()
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": 2,
            "offload_optimizer": {"device": "cpu"},
            "ignore_unused_parameters": "--advised" in sys.argv,
        },
    },
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
