"""Logs without what tells of people, machines and projects."""

from __future__ import annotations

import pytest
from safe_launch.logs.scrubbed import scrubbed

PRIVATE = """\
[gpu-node-17:0]: job_id=48123 of alice.smith@acme-research.com on host gpu-node-17 (10.31.4.17)
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 HF_TOKEN=hf_abcdefghijklmnop
gpu-node-17:2211:2290 [0] NCCL INFO Bootstrap : Using eth0:10.31.4.17<0>
https://alice:hunter22@git.acme-research.com/merger and fe80::1ff:fe23:4567:890a
File "/home/alice/secret-merger/src/train_it.py", line 40, in main
File "/home/alice/envs/merger/lib/python3.11/site-packages/torch/nn/linear.py", line 2, in f
File "/home/alice/LLaMA-Factory/src/llamafactory/train/loop.py", line 2, in f
can't open "/data/acme/secret-merger/q3-numbers.pt" of alice
GPU-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed
C:\\Users\\alice\\secret-merger\\run.py
StepId=91822.0 MASTER_ADDR=acme-head-1 user=alice
"""
WORDS = (
    *("alice", "acme", "secret-merger", "gpu-node-17", "10.31.4.17", "hunter22", "hf_abc", "48123"),
    *("0123456789abcdef", "q3-numbers", "bbfd", "91822", "890a"),
)


def test_nothing_private_is_left() -> None:
    """Users, hosts, addresses, keys, jobs and projects are gone; what frameworks name stays."""
    text = scrubbed(PRIVATE)
    assert [word for word in WORDS if word in text] == []
    for kept in (
        '/opt/venv/lib/python3.11/site-packages/torch/nn/linear.py", line 2, in f',
        "llamafactory/train/loop.py",
        'train_it.py", line 40, in main',
        "NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>",
    ):
        assert kept in text
    assert len(text.splitlines()) == len(PRIVATE.splitlines())


ADDRESSES = """\
wandb: https://wandb.merger.tech:8443/acme/run?entity=alice failed
fsspec s3://acme-weights/merger/a.pt, gs://acme-data and hdfs://acme-head/x
HTTPSConnectionPool(host='git.acme.dev', port=443); resolve registry.acme.co.jp.
mailto bob@acme.tech; connect to tcp://acme-head:29500
posted to https://hooks.slack.com/services/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
"""


def test_domains_and_keys_are_gone() -> None:
    """In addresses of any ending, buckets, words of libraries; keys of any service."""
    keys = ["npm_" + "aZ3k" * 9, "AKIA" + "Q7ZK" * 4, "xoxb-123456789012-" + "aZ3k" * 6]
    text = scrubbed(f"{ADDRESSES}{' '.join(keys)} mysql://root:hunter22@h/x DB_PASS=battery")
    for private in ("merger", "acme", "alice", "bob", "T0123", "hunter22", "battery", *keys):
        assert private not in text


@pytest.mark.parametrize(
    "part",
    [
        *(
            "a",
            "a.",
            "a-",
            "a1-",
            "a@",
            "\n",
            "\\",
            "/",
            "/a",
            "/a+",
            "://",
            "a://",
            "job=",
            "slurmstepd-",
        ),
        *("a:", "1:", "1.", "on host ", "user=", "node=a-", "/home/", "C:\\", " host", "b.com."),
    ],
)
def test_a_long_line_is_read_in_linear_time(part: str) -> None:
    """So many of each that it would take minutes if a search began anew at each of them."""
    scrubbed(part * (2**18 // len(part)))


def test_the_same_stays_the_same() -> None:
    """Two hosts stay two, wherever they are named, and a scrubbed text is left as it is."""
    text = "on host big-1: 10.0.0.1\non host big-2: 10.0.0.2\nbig-1 waits for 10.0.0.2"
    assert scrubbed(text) == (
        "on host host1: 192.0.2.1\non host host2: 192.0.2.2\nhost1 waits for 192.0.2.2"
    )
    assert scrubbed(scrubbed(PRIVATE)).count("example.com") == scrubbed(PRIVATE).count(
        "example.com"
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-02 03:04:05,678 step 10/100 loss 1.23 at 12:30:45",
        "see https://github.com/deepspeedai/DeepSpeed/issues/6914 and https://pytorch.org/docs/x",
        "torch 2.10.0+cu128, nvidia-cublas-cu12==12.8.4.1, numpy.core.umath, os.path.join(a)",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1: cannot open; /dev/shm is full; a/b and and/or",
        "[127.0.0.1]:29500 cuda:0 rank0: epoch 3: 50%|#####     | 5/10 [00:01<00:02, 3.1it/s]",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x8)",
    ],
)
def test_what_says_nothing_of_anybody_stays(line: str) -> None:
    """Times, versions, public pages, the system's files, this host's own address, messages."""
    assert scrubbed(line) == line
