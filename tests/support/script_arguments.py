"""Arguments of scripts that a launcher might take for its own."""

BEHIND = (
    *("--in x", "--log 3", "--a 1", "--n 2", "--h", "-h", "--help", "--version", "-m x", "-mx"),
    *("--nnodes 2", "--nproc=2", "--no- 1", "-t3", "-1", "--", "-- --nproc 2", "a -- b", "- -q"),
    *("--autotuning run", "--set=1 --i", "--fix", "--tee", "plan", "--node-timeout soon"),
)
"""What argparse, the launcher's own options and torchrun would like to have a say in."""
