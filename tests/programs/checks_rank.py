"""Takes its local rank as an argument, and leaves it in `ran-RANK`."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank")
with open(f"ran-{os.environ['RANK']}", "w") as file:
    file.write(f"argument {parser.parse_args().local_rank}")
