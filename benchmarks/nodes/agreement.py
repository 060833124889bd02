"""Time and traffic of an agreement between 2 to 512 nodes, as a curve.

    python benchmarks/nodes/agreement.py [--nodes 2,4,...] [--workers N] [--elastic-up-to N]
        [--without-secret] [--plot]

Node 0 is `safe-launch` itself, with real workers that sleep. The other nodes are threads of one
process (`agreement_nodes.py`): they join by the launcher's own code over TCP and send a launcher's
messages. One of them reports a failure, the example's with its traceback, and every rank of every
node has one like it: the worst case. Measured are

- agree: from the nodes' hello until the last one has its order to start;
- stop: from the failure until the last one gets the order to stop its workers;
- verdict: from the failure until the last one has the corrected order, after all have reported
  their workers' ends;
- for that, node 0's processor time, which a loaded machine doesn't change;
- until then, the traffic as the kernel counts it, and the peak memory of node 0.

The peer is the rendezvous of torch elastic that torchrun's agents use (`agreement_elastic.py`),
with as many agents, without workers, as threads of one process: they join, and after a failure of
one they join again. They agree on no plan, records or diagnosis.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = str(Path(sys.executable).with_name("safe-launch"))
EXAMPLE = ROOT / "examples" / "finetune.py"
ARGUMENTS = (
    *("--deepspeed", str(ROOT / "examples" / "zero2.json"), "--gradient_checkpointing", "True"),
    *("--gradient_checkpointing_kwargs", '{"use_reentrant": true}', "--max_steps", "12"),
    *("--per_device_train_batch_size", "4", "--save_strategy", "no", "--report_to", "none"),
    *("--use_cpu", "--disable_tqdm", "True", "--output_dir"),
)
SLEEPING = """\
import os, pathlib, time
name = "TORCHELASTIC_RESTART_COUNT", "RANK"
pathlib.Path(os.environ["READY"], "-".join(os.environ[one] for one in name)).touch()
time.sleep(100_000)
"""
"""The program of node 0's workers; the example's text follows for the launcher's readers."""
Row = dict[str, Any]


def real_failure(folder: Path) -> Path:
    """The example's failure as reported by its worker."""
    command = [LAUNCHER, "--nproc", "2", "--fix", "suggest", "--log-dir", folder, EXAMPLE]
    command += [*ARGUMENTS, folder / "output"]
    subprocess.run(command, capture_output=True, check=False)
    (found,) = folder.glob("*/attempt-1/failures.json")
    path = folder / "record.json"
    path.write_text(json.dumps(json.loads(found.read_text())["findings"][0]["record"]))
    return path


def measure(nodes: int, workers: int, record: Path, folder: Path) -> Row:
    """One run of safe-launch with simulated nodes."""
    folder.mkdir()
    script = folder / "finetune.py"
    script.write_text(
        SLEEPING + EXAMPLE.read_text().replace("from __future__", "# from __future__")
    )
    case = {
        "nodes": nodes,
        "workers": workers,
        "port": 20_000 + os.getpid() % 9_000,
        "record": str(record),
        "ready": str(folder),
        "script": str(script),
        "arguments": [*ARGUMENTS, str(folder / "output")],
    }
    command = [LAUNCHER, "--nnodes", nodes, "--node-rank", 0, "--master-addr", "127.0.0.1"]
    command += ["--master-port", case["port"], "--rdzv-id", "agreement", "--nproc", workers]
    command += ["--log-dir", folder, script, *case["arguments"]]
    log = folder / "head.log"
    with log.open("w") as output:
        head = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, "READY": str(folder)},
            stdout=output,
            stderr=output,
        )
        try:
            row = told("agreement_nodes.py", {**case, "head": head.pid})
        finally:
            head.terminate()
            head.wait()
            print(log.read_text()[-3000:] if sys.exc_info()[0] else "", end="", file=sys.stderr)
    return row


def told(script: str, case: Mapping[str, Any]) -> Row:
    """The measurements of a part of this benchmark in a separate process."""
    command = [sys.executable, str(Path(__file__).with_name(script)), json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def middle(rows: Sequence[Row]) -> Row:
    """The median of each number over the rounds."""
    return {name: median(row[name] for row in rows) for name in rows[0]}


def table(rows: Mapping[int, Row], peers: Mapping[int, Row]) -> list[str]:
    """The curve as a table."""
    own = "| nodes | agree | stop | verdict | its CPU | messages | of a node | MiB | memory |"
    peer = " elastic joins | again | store's operations | of a node | MiB |"
    lines = [own + peer, f"|{'---:|' * 14}"]
    for nodes, row in rows.items():
        cells = [
            str(nodes),
            *(f"{row[name]:.2f} s" for name in ("agree", "stop", "verdict", "processor")),
            f"{row['messages']:.0f}",
            f"{row['messages'] / max(1, nodes - 1):.1f}",
            f"{row['bytes'] / 2**20:.2f}",
            f"{row['memory'] / 2**20:.0f} MiB",
        ]
        if other := peers.get(nodes):
            cells += [
                *(f"{other[name]:.2f} s" for name in ("joined", "again")),
                f"{other['operations']:.0f}",
                f"{other['operations'] / nodes:.0f}",
                f"{other['bytes'] / 2**20:.2f}",
            ]
        else:
            cells += ["-"] * 5
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def plot(rows: Mapping[int, Row], peers: Mapping[int, Row], path: Path) -> None:
    """Times and messages over nodes, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib isn't installed (pip install 'safe-launch[benchmarks]')")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "safe-launch"
    from matplotlib import pyplot

    figure, (times, messages) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axes, unit in ((times, "seconds"), (messages, "messages, or the store's operations")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(list(rows), [str(nodes) for nodes in rows])
        axes.set_xlabel("nodes")
        axes.set_ylabel(unit)
        axes.grid(visible=True, linewidth=0.3)
    for name in ("agree", "stop", "verdict"):
        times.plot(list(rows), [row[name] for row in rows.values()], "o-", label=name)
    for name, text in (("joined", "elastic: join"), ("again", "elastic: join again")):
        times.plot(list(peers), [row[name] for row in peers.values()], "x--", label=text)
    messages.plot(list(rows), [row["messages"] for row in rows.values()], "o-", label="safe-launch")
    told = [row["operations"] for row in peers.values()]
    messages.plot(list(peers), told, "x--", label="torch elastic")
    for axes in (times, messages):
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Prints the table, and draws it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="2,4,8,16,32,64,128,256,512")
    parser.add_argument("--workers", type=int, default=8, help="of each node")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elastic-up-to", type=int, default=64, metavar="NODES")
    parser.add_argument("--plot", action="store_true", help="write docs/measured/agreement.svg")
    parser.add_argument("--without-secret", action="store_true", help="links without protection")
    options = parser.parse_args()
    os.environ["SAFE_LAUNCH_SECRET"] = secrets.token_hex(32)
    if options.without_secret:
        del os.environ["SAFE_LAUNCH_SECRET"]
    sizes = [int(size) for size in options.nodes.split(",")]
    rows: dict[int, list[Row]] = {}
    peers: dict[int, list[Row]] = {}
    with tempfile.TemporaryDirectory() as name:
        record = real_failure(Path(name))
        for number in range(options.rounds):
            for nodes in sizes:
                folder = Path(name) / f"{number}-{nodes}"
                rows.setdefault(nodes, []).append(measure(nodes, options.workers, record, folder))
                if nodes <= options.elastic_up_to:
                    peer = told("agreement_elastic.py", {"nodes": nodes})
                    peers.setdefault(nodes, []).append(peer)
                print(rows[nodes][-1], peers.get(nodes, [{}])[-1], file=sys.stderr, flush=True)
    curve = {nodes: middle(measured) for nodes, measured in rows.items()}
    other = {nodes: middle(measured) for nodes, measured in peers.items()}
    print("\n".join(table(curve, other)))
    if options.plot:
        plot(curve, other, ROOT / "docs" / "measured" / "agreement.svg")


if __name__ == "__main__":
    main()
