"""The launch is for two nodes, and only this one is started."""

import sys

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

RANKS = 1

nodes = 1 if "--advised" in sys.argv else 2
config = LaunchConfig(
    min_nodes=nodes,
    max_nodes=nodes,
    nproc_per_node=1,
    run_id="finetune",
    rdzv_backend="c10d",
    rdzv_endpoint="localhost:0",
    rdzv_configs={"join_timeout": 2 if nodes > 1 else 60},
)
elastic_launch(config, sys.executable)("-c", "print('trained')")
