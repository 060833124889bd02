"""The Kubernetes manifests, as shipped and filled in for a job."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions, major_minor
from safe_launch.cli import guarded
from safe_launch.commands.cluster_files import VARIANTS
from safe_launch.commands.diagnose import CODES
from safe_launch.core.errors import ExitCode, meaning
from safe_launch.core.request import StopTimes
from safe_launch.nodes.secret import VARIABLE
from safe_launch.options.parser import parsed
from safe_launch.system.orphans import KILLING
from support.pods import decided
from support.stacks import ROOT

FOLDER = ROOT / "scripts" / "kubernetes"
OLDEST = (1, 29)
"""The first version of Kubernetes that the manifests are for: it has `backoffLimitPerIndex`."""
VERSIONS = [
    version
    for version in sorted(set(map(major_minor, all_versions())))
    if tuple(map(int, version.split("."))) >= OLDEST
]
COMMAND = (
    *(
        "--fix",
        "once",
        "train.py",
        "--text",
        'a "b" $(HOME) $x\n- c: #',
        "--lr",
        "1e-4",
        "--on",
        "yes",
    ),
    *("", "~", "é😀", "y", "0x1", ".5", "null", "{}", "a:", "-", "--deepspeed=z/ero_3.json"),
)
ARGUMENTS = [one.replace("$", "$$") for one in COMMAND]


def filled(capsys: pytest.CaptureFixture[str], *options: str) -> list[Any]:
    """The documents of a filled-in manifest."""
    given = ("--image", "ghcr.io/team/train:7", "--nodes", "5", "--gpus-per-node", "4", *options)
    assert guarded(["template", "kubernetes", *given, "--", *COMMAND]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def shipped(variant: str) -> list[Any]:
    """The documents of a manifest as shipped."""
    return list(yaml.safe_load_all((FOLDER / f"{variant}.yaml").read_text()))


def inside(value: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name == key:
                yield one
            yield from inside(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from inside(one, key)


def pods(documents: list[Any]) -> list[Any]:
    """All pod specifications in the documents."""
    return [one for one in inside(documents, "spec") if "containers" in one]


def test_there_is_a_file_for_every_variant() -> None:
    """The command offers exactly the shipped files."""
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(VARIANTS)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_job(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Shipped and filled in; unknown fields are errors."""
    for document in (*shipped("indexed-job"), *filled(capsys)):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_every_variant_runs_is_a_pod(variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods and Jobs inside custom resources are valid, too."""
    for documents in (shipped(variant), filled(capsys, "--variant", variant)):
        for spec in pods(documents):
            metadata = {"name": "finetune"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
        for policy in inside(documents, "podFailurePolicy"):
            (job,) = [
                one for one in inside(documents, "spec") if one.get("podFailurePolicy") == policy
            ]
            whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}
            kubernetes_validate.validate(whole, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_filled_manifest_differs_where_it_should(
    variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only name, nodes, image, accelerators and script differ from the shipped file."""
    before, after = shipped(variant), filled(capsys, "--variant", variant, "--name", "my-job")
    shown = json.dumps(after)
    assert "finetune" not in shown
    names = [one["metadata"]["name"] for one in after]
    assert names == [one["metadata"]["name"].replace("finetune", "my-job") for one in before]
    assert set(inside(after, "image")) == {"ghcr.io/team/train:7"}
    assert set(inside(after, "nvidia.com/gpu")) == {4}
    every = list(inside(after, "args"))
    assert every
    for arguments in every:
        own = [one for one in arguments if one == "--log-dir=/runs"]
        assert arguments == [*own, *ARGUMENTS]
    assert before[0]["stringData"] == {"secret": ""}
    before[0]["stringData"] = after[0]["stringData"]
    original = json.dumps(before)
    for old, new in (
        ('"finetune.py", "--deepspeed=zero2.json"', json.dumps(ARGUMENTS)[1:-1]),
        ("registry.example.com/finetune:latest", "ghcr.io/team/train:7"),
        ("finetune", "my-job"),
        ('"nvidia.com/gpu": 8', '"nvidia.com/gpu": 4'),
        ('"PET_NNODES", "value": "2"', '"PET_NNODES", "value": "5"'),
        *((f'"{key}": 2', f'"{key}": 5') for key in ("completions", "parallelism")),
        *((f'"{key}": 2', f'"{key}": 5') for key in ("numNodes", "minAvailable", "replicas")),
    ):
        original = original.replace(old, new)
    if variant == "pytorchjob":
        head, mark, tail = original.partition('"Worker": {"replicas": 1')
        original = f"{head}{mark[:-1]}4{tail}"
    assert shown == original


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_only_some_jobs_have(variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests, a queue and restrictions appear only on request."""
    given = ("template", "kubernetes", "--image=x", "--nodes=2", f"--variant={variant}")
    assert guarded([*given, "train.py"]) == 0
    plain = list(yaml.safe_load_all(capsys.readouterr().out))
    for key in ("requests", "kueue.x-k8s.io/queue-name", "queue", "securityContext"):
        assert not list(inside(plain, key))
    asked = ("--gpus-per-node=0", "--cpus=8", "--memory=64Gi", "--queue=team", "--restricted")
    assert guarded([*given, *asked, "train.py"]) == 0
    text = capsys.readouterr().out
    documents = list(yaml.safe_load_all(text))
    if variant == "indexed-job":
        for document in documents:
            kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    assert "nvidia.com/gpu: " not in text
    requests = list(inside(documents, "requests"))
    assert requests
    assert all(asks == {"cpu": 8, "memory": "64Gi"} for asks in requests)
    queues = [*inside(documents, "queue"), *inside(documents, "kueue.x-k8s.io/queue-name")]
    assert queues == ["team"]
    for spec in pods(documents):
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    for variables in inside(documents, "env"):
        if isinstance(variables, list) and variables:
            own = {variable["name"]: variable.get("value") for variable in variables}
            assert (own["HOME"], own["TMPDIR"]) == ("/runs", "/runs")


def test_every_document_is_read_once() -> None:
    """No mapping repeats a key: YAML readers keep the last value only."""

    class Once(yaml.SafeLoader):
        """A YAML loader that rejects repeated keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            assert len(keys) == len(set(keys)), f"{keys}, {node.start_mark}"
            return super().construct_mapping(node, deep)

    for variant in VARIANTS:
        list(yaml.load_all((FOLDER / f"{variant}.yaml").read_text(), Once))


def test_the_comments_and_marks_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """Filled-in files keep the comments for later edits."""
    text = (FOLDER / "indexed-job.yaml").read_text()
    guarded(["template", "kubernetes", "--image", "x", "--nodes", "2", "finetune.py"])
    out = capsys.readouterr().out
    comments = [one for one in re.findall(r"#.*", text) if one != "# script"]
    assert [one for one in re.findall(r"#.*", out) if one != "# script"] == comments
    assert "    - finetune.py  # script\n" in out


def test_what_kubernetes_would_refuse_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A stated name is rejected if invalid; a script's name is converted if possible."""
    for name in ("My-Job", "9a", "a_b", "a-", "", "x" * 51):
        given = ("--image", "x", "--name", name, "a.py")
        assert guarded(["template", "kubernetes", *given]) == (
            ExitCode.USAGE if name else ExitCode.SUCCESS
        )
    capsys.readouterr()
    guarded(["template", "kubernetes", "--image", "x", "src/My_train.v2.py"])
    assert "  name: my-train-v2  # name\n" in capsys.readouterr().out
    assert guarded(["template", "kubernetes", "--image", "x", "123.py"]) == ExitCode.USAGE
    assert "--name" in capsys.readouterr().err
    pair = ("--image", "x", "--variant", "pytorchjob")
    assert guarded(["template", "kubernetes", *pair, "train.py"]) == ExitCode.USAGE
    assert "--variant indexed-job" in capsys.readouterr().err
    assert guarded(["template", "kubernetes", "train.py"]) == ExitCode.USAGE
    assert "--image" in capsys.readouterr().err


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_gets_what_safe_launch_needs(variant: str) -> None:
    """A grace period, shared memory, a record volume and a termination message."""
    slowest = StopTimes().terminate + KILLING
    documents = shipped(variant)
    assert set(inside(documents, "restartPolicy")) == {"Never"}
    for spec in pods(documents):
        assert spec["terminationGracePeriodSeconds"] > slowest
        volumes = {one["name"]: one["emptyDir"] for one in spec["volumes"]}
        (container,) = spec["containers"]
        mounts = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
        assert mounts["/dev/shm"]["medium"] == "Memory"
        assert mounts["/dev/shm"]["sizeLimit"]
        command = [*container.get("command", []), *container.get("args", [])]
        folder = next(one for one in command if one.startswith("--log-dir="))
        assert folder.partition("=")[2] in mounts
        assert container["terminationMessagePath"] == "/dev/termination-log"
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert parsed([*command[command.index(folder) :], "x.py"]).log_dir


@pytest.mark.parametrize("variant", ["indexed-job", "jobset", "trainjob"])
def test_the_exit_codes_decide_whether_a_pod_starts_again(variant: str) -> None:
    """Permanent failures end the job, lost nodes don't, and preemptions don't count."""
    documents = shipped(variant)
    (policy,) = inside(documents, "podFailurePolicy")
    (spec,) = pods(documents)
    (container,) = spec["containers"]
    for rule in policy["rules"]:
        if "onExitCodes" in rule:
            assert rule["onExitCodes"]["containerName"] == container["name"]
            values = rule["onExitCodes"]["values"]
            assert values == sorted({*values} - {0}), "the API wants them so"
    once_more = {ExitCode.RETRY_ELSEWHERE, 128 + 9, 128 + 15}
    for code in (1, 2, 42, 134, 139, *set(ExitCode) - {ExitCode.SUCCESS}, *once_more):
        expected = "Count" if code in once_more else "FailJob"
        assert decided(policy["rules"], code) == expected, code
        assert decided(policy["rules"], code, is_disrupted=True) == "Ignore"


def test_volcano_restarts_for_the_same_codes() -> None:
    """Its policies list the codes of the other manifests' rules."""
    (policies,) = inside(shipped("volcano"), "policies")
    again = {one.get("exitCode") for one in policies if one["action"] == "RestartJob"}
    assert again - {None} == {ExitCode.RETRY_ELSEWHERE, 137, 143}
    events = [one.get("event") for one in policies]
    assert events.index("PodFailed") > max(
        number for number, one in enumerate(policies) if "exitCode" in one
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_secret_of_its_own(variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each written manifest has a new secret, in every container and nowhere else.

    The shipped file's secret is empty, which safe-launch rejects.
    """
    seen = set()
    for _ in range(2):
        documents = filled(capsys, "--variant", variant, "--name", "my-job")
        (secret,) = [one for one in documents if one["kind"] == "Secret"]
        value = secret["stringData"]["secret"]
        assert re.fullmatch("[0-9a-f]{64}", value)
        assert json.dumps(documents).count(value) == 1
        seen.add(value)
        keys = list(inside(documents, "secretKeyRef"))
        pods_with_it = 2 if variant == "pytorchjob" else 1
        assert keys == [{"name": secret["metadata"]["name"], "key": "secret"}] * pods_with_it
        assert json.dumps(documents).count(VARIABLE) == pods_with_it
    assert len(seen) == 2


def test_others_cant_read_it(tmp_path: Path) -> None:
    """Only the user can read the written file."""
    given = ["template", "kubernetes", "--image", "x", "-o", str(tmp_path / "job.yaml"), "train.py"]
    assert guarded(given) == 0
    assert (tmp_path / "job.yaml").stat().st_mode & 0o777 == 0o600


def test_every_pod_of_the_job_can_be_found_by_name() -> None:
    """The Service selects the Job's pods, whose subdomain it is."""
    _, service, job = shipped("indexed-job")
    (spec,) = pods([job])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert spec["subdomain"] == service["metadata"]["name"]
    selector = service["spec"]["selector"]
    assert selector == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}


def test_the_image_starts_safe_launch_and_has_what_it_is_made_of() -> None:
    """The container's first process isn't a shell; copied files pass .dockerignore."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    (entrypoint,) = [one for one in lines if one.startswith("ENTRYPOINT")]
    assert json.loads(entrypoint.removeprefix("ENTRYPOINT ")) == ["safe-launch"]
    copied = [word for one in lines if one.startswith("COPY") for word in one.split()[1:-1]]
    let_in = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in let_in
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert set(project["package-dir"].values()) <= set(copied)
    (arguments,) = inside(shipped("indexed-job"), "args")
    named = [one.rpartition("=")[2] for one in arguments if one.endswith((".py", ".json"))]
    assert named
    for name in named:
        assert (ROOT / "examples" / name).exists()


def table(heading: str) -> list[list[str]]:
    """The rows of the table with this first line in docs/using/exit-codes.md."""
    _, _, rest = (ROOT / "docs" / "using" / "exit-codes.md").read_text().partition(f"{heading}\n")
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_documented_exit_codes_are_the_programs() -> None:
    """The table has every code with the program's text; the manifests follow it."""
    rows = {
        code: (text, again)
        for code, text, again in table("| code | meaning | start the same job again? |")
    }
    rest = rows.pop("any other")
    assert rest[0].startswith(meaning(1))
    assert {int(code) for code in rows} >= set(ExitCode)
    (policy,) = inside(shipped("indexed-job"), "podFailurePolicy")
    for code, (text, again) in {**rows, "1": (meaning(1), rest[1])}.items():
        assert text == meaning(int(code))
        action = {"yes": "Count", "no": "FailJob", "": None}[again]
        assert action == (decided(policy["rules"], int(code)) if int(code) else None)


def test_the_documented_exit_codes_of_a_diagnosis_are_the_programs() -> None:
    """`diagnose` has separate exit codes."""
    codes = {int(code) for code, _ in table("| code | meaning |")}
    assert codes == {*CODES.values(), ExitCode.USAGE}
