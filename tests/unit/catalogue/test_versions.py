"""Which of two incompatible packages must change, and in which direction."""

from __future__ import annotations

from pathlib import Path

from safe_launch.catalogue.version_skew import MODULES, Skew, Wanting, history_of
from safe_launch.catalogue.versions import direction, versions_of
from safe_launch.evidence.failure_record import FailureRecord, Frame
from support.tables import table

NOTHING = FailureRecord(0, 0.0)


def asks(package: str, name: str, wanting: str = "trl") -> Skew:
    """A package that imports a name from another."""
    return Skew(Wanting.PACKAGE, wanting, package, name)


@table(
    ("package", "owner", "name", "has", "lacks", "is_gone"),
    [
        ("transformers", "", "LlamaFlashAttention2", "4.47.1", "4.48.3", True),
        ("transformers", "transformers", "HybridCache", "4.57.6", "5.0.0", True),
        ("transformers", "TrainingArguments()", "evaluation_strategy", "4.50.3", "4.51.3", True),
        ("transformers", MODULES, "modeling_attn_mask_utils", "5.23.0", "5.24.0", True),
        ("peft", "LoraConfig()", "corda_config", "0.14.0", "0.15.2", False),
        ("huggingface_hub", "huggingface_hub", "cached_download", "0.25.2", "0.26.5", True),
        ("torch", "distributed.fsdp", "FSDPModule", "2.5.1", "2.6.0", False),
        ("torch", MODULES, "_six", "1.13.1", "2.0.1", True),
        ("vllm", "EngineArgs()", "worker_use_ray", "0.6.6.post1", "0.7.3", True),
        ("PIL", "Image", "ANTIALIAS", "9.5.0", "10.0.1", True),
        ("google", "protobuf.internal", "builder", "3.19.6", "3.20.3", False),
        ("pytorch_lightning", MODULES, "utilities.cloud_io", "1.9.5", "2.0.9.post0", True),
        ("lightning", "", "training_epoch_end", "1.9.5", "2.0.9.post0", True),
    ],
)
def test_when_names_came_and_went(
    package: str, owner: str, name: str, has: str, lacks: str, is_gone: bool
) -> None:
    """The history comes from the releases' archives; a name may remain in other owners."""
    known = history_of(package, name, owner)
    assert known is not None
    order = (known.has, known.lacks) if is_gone else (known.lacks, known.has)
    assert (*order, known.is_gone) == (has, lacks, is_gone)


def test_a_name_of_which_nothing_is_known() -> None:
    """Unknown names and unindexed packages have no history."""
    assert history_of("transformers", "no_such_name") is None
    assert history_of("timm", "HybridCache") is None


def test_only_an_older_one_has_it() -> None:
    """Upgrading the package that lacks the name isn't advised; upgrading its user may be."""
    text = direction(asks("transformers", "HybridCache", "peft"), NOTHING)
    assert 'pip install "transformers==4.57.6"' in text
    assert "upgrade peft" in text
    assert "-U transformers" not in text


def test_only_a_newer_one_has_it() -> None:
    """It is upgraded, or what asks for the name is downgraded."""
    text = direction(asks("accelerate", "clear_device_cache"), NOTHING)
    assert text.endswith('`pip install -U "accelerate>=0.32.1"`. Or downgrade trl.')


@table(
    ("package", "name", "owner", "command"),
    [
        ("PIL", "ANTIALIAS", "Image", 'pip install "pillow==9.5.0"'),
        ("pkg_resources", "packaging", "pkg_resources", 'pip install "setuptools==69.5.1"'),
        ("google", "runtime_version", "protobuf", 'pip install -U "protobuf>='),
        ("swift", "llm", MODULES, 'pip install "ms-swift=='),
    ],
)
def test_pip_has_other_names(package: str, name: str, owner: str, command: str) -> None:
    """The command has the distribution's name."""
    text = direction(Skew(Wanting.PACKAGE, "trl", package, name, owner), NOTHING)
    assert command in text


def test_a_name_that_remains_elsewhere() -> None:
    """Its history is that of the module it is missing from; a package without it is too old."""
    moved = Skew(Wanting.SCRIPT, "", "vllm", "FlexibleArgumentParser", "utils")
    assert 'pip install "vllm==0.10.2"' in direction(moved, NOTHING)


def test_a_name_that_others_of_the_class_kind_lost() -> None:
    """A model's code wasn't written for the later release in which something else got the name."""
    of_model = history_of("transformers", "get_max_length", "DynamicCache", is_of_model=True)
    assert of_model is not None
    assert (of_model.has, of_model.is_gone) == ("4.48.3", True)
    assert history_of("transformers", "get_max_length", "DynamicCache") is None


def test_a_name_from_before_the_history() -> None:
    """What other modules got since and none lost is still there, so the package is too old."""
    asked = Skew(Wanting.PACKAGE, "trl", "transformers", "is_torch_npu_available", "transformers")
    text = direction(asked, NOTHING)
    assert text == "Newer releases have it: `pip install -U transformers`."
    lost = Skew(Wanting.PACKAGE, "trl", "transformers", "is_torch_mps_available", "transformers")
    assert "older of the two" in direction(lost, NOTHING)
    of_call = Skew(Wanting.PACKAGE, "trl", "transformers", "is_torch_npu_available", "generate")
    assert "older of the two" in direction(of_call, NOTHING)


def test_the_logs_own_version_contradicts_the_history() -> None:
    """No version is advised if the logged one should have the name."""
    log = ("INFO versions: transformers==4.46.0 accelerate==1.2.0",)
    text = direction(asks("accelerate", "clear_device_cache"), FailureRecord(0, 0.0, log_tail=log))
    assert "the older of the two" in text
    assert "0.32.1" not in text


def test_a_script_alone_has_no_newer_version() -> None:
    """A script can't be upgraded, so the package must be downgraded."""
    text = direction(Skew(Wanting.SCRIPT, "", "transformers", "HybridCache"), NOTHING)
    assert text.endswith('`pip install "transformers==4.57.6"`.')


def test_what_a_package_declares_counts_first(tmp_path: Path) -> None:
    """The requirement is read from the traceback's folder if it is on this machine."""
    site = tmp_path / "lib" / "site-packages"
    for name, version, needs in (
        ("trl", "0.30.0", "Requires-Dist: transformers>=4.56.1\n"),
        ("transformers", "4.50.0", ""),
    ):
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        (folder / "METADATA").write_text(head)
    frame = Frame(str(site / "trl" / "core.py"), 3, "f", "call(")
    record = FailureRecord(0, 0.0, frames=(frame,))
    text = direction(asks("transformers", "no_such_name"), record)
    assert text == (
        "trl 0.30.0 needs transformers>=4.56.1, and 4.50.0 is installed: "
        '`pip install "transformers>=4.56.1"`.'
    )
    assert versions_of(record) == {"trl": "0.30.0", "transformers": "4.50.0"}


@table(
    ("line", "expected"),
    [
        ("DeepSpeed info: version=0.16.5, git-hash=unknown", {"deepspeed": "0.16.5"}),
        ("transformers==4.46.3 is installed", {"transformers": "4.46.3"}),
        ("- `transformers` version: 4.46.3", {"transformers": "4.46.3"}),
        ("torch 2.5.1+cu124, vllm 0.8.5.post1", {"torch": "2.5.1", "vllm": "0.8.5.post1"}),
        ("Successfully installed huggingface-hub-0.36.2", {"huggingface_hub": "0.36.2"}),
        ("torch took 2.5 s, ray 10.0.0.3:6379", {}),
        ("/opt/transformers-4.46.3/src/x.py", {"transformers": "4.46.3"}),
        ("ms-swift 3.9.3, Pillow==9.5.0", {"swift": "3.9.3", "PIL": "9.5.0"}),
    ],
)
def test_versions_in_a_log(line: str, expected: dict[str, str]) -> None:
    """Loggers, pip and people write them differently; addresses and times don't match."""
    assert versions_of(FailureRecord(0, 0.0, log_tail=(line,))) == expected
