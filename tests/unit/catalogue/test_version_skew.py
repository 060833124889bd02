"""Version skew: which code needs which name of which package, and only if that is certain."""

from __future__ import annotations

from safe_launch.catalogue.version_skew import MODULES, Skew, Wanting, package_of_class, skew_of
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from support.tables import table

SITE = "/opt/env/lib/python3.11/site-packages"
USER = Frame("/home/anna/train.py", 9, "<module>", "main()")
MODEL = Frame(
    "/root/.cache/huggingface/modules/transformers_modules/m/modeling.py", 5, "forward", "x"
)


def frame(path: str, function: str = "setup", source: str = "call(") -> Frame:
    """A frame in an installed package."""
    return Frame(f"{SITE}/{path}", 3, function, source)


TRL, VLLM, TRANSFORMERS = (
    frame("trl/cli.py"),
    frame("vllm/llm.py"),
    frame("transformers/trainer.py"),
)
IMPORT, ATTRIBUTE, CALL = "ImportError", "AttributeError", "TypeError"
LORA = "LoraConfig.__init__() got an unexpected keyword argument 'rank'"
CALLBACK = "Rows.on_log() got an unexpected keyword argument 'logs'"
ENGINE = "EngineArgs.__init__() got an unexpected keyword argument 'swap'"
FORWARD = "LlamaAttention.forward() missing 1 required positional argument: 'position_embeddings'"
GATHER = "'DeepSpeedZeRoOffload' object has no attribute '_hooks'"
CACHE = f"cannot import name 'Cache' from 'transformers' ({SITE}/transformers/__init__.py)"


@table(
    ("exception", "message", "frames", "expected"),
    [
        (IMPORT, CACHE, (USER, TRL), (Wanting.PACKAGE, "trl", "transformers", "Cache")),
        (IMPORT, CACHE, (TRL, USER), (Wanting.SCRIPT, "", "transformers", "Cache")),
        (
            IMPORT,
            CACHE,
            (USER, TRANSFORMERS),
            (Wanting.SAME, "transformers", "transformers", "Cache"),
        ),
        (IMPORT, CACHE, (MODEL,), (Wanting.MODEL, "transformers_modules", "transformers", "Cache")),
        (
            IMPORT,
            CACHE.replace(SITE, "/home/anna"),
            (TRL,),
            (Wanting.PACKAGE, "trl", "transformers", "Cache"),
        ),
        (IMPORT, "cannot import name 'x' from 'datasets' (/home/anna/datasets.py)", (USER,), None),
        (
            IMPORT,
            "cannot import name 'x' from partially initialized module 'trl' (y)",
            (USER,),
            None,
        ),
        (IMPORT, "cannot import name 'x' from 'torch' (unknown location)", (TRL,), None),
        (IMPORT, "No module named 'trl.core'", (USER,), (Wanting.SCRIPT, "", "trl", "core")),
        (IMPORT, "No module named 'trl'", (USER,), None),
        (IMPORT, "No module named 'model.layers'", (USER,), None),
        (
            ATTRIBUTE,
            "module 'torch.library' has no attribute 'register_fake'",
            (USER, frame("torchvision/ops.py")),
            (Wanting.PACKAGE, "torchvision", "torch", "register_fake"),
        ),
        (
            ATTRIBUTE,
            "module transformers has no attribute Old",
            (TRL, frame("transformers/utils/import_utils.py", "__getattr__")),
            (Wanting.PACKAGE, "trl", "transformers", "Old"),
        ),
        (ATTRIBUTE, "module 'torch' has no attribute 'x'", (frame("torch/nn.py"),), None),
        (
            ATTRIBUTE,
            "'GRPOTrainer' object has no attribute 'steps'",
            (USER, TRL),
            (Wanting.PACKAGE, "trl", "transformers", "steps"),
        ),
        (ATTRIBUTE, "'GRPOTrainer' object has no attribute 'steps'", (TRL, USER), None),
        (
            ATTRIBUTE,
            "'GRPOTrainer' object has no attribute 'steps'. Did you mean: '_steps'?",
            (USER, TRL),
            None,
        ),
        (ATTRIBUTE, "'OwnTrainer' object has no attribute 'steps'", (USER, TRANSFORMERS), None),
        (ATTRIBUTE, "'NoneType' object has no attribute 'steps'", (TRL,), None),
        (ATTRIBUTE, "'NoneType' object has no attribute 'steps'", (MODEL,), None),
        (
            ATTRIBUTE,
            "'MiniTokenizer' object has no attribute 'sp'",
            (USER, MODEL),
            (Wanting.MODEL, "transformers_modules", "transformers", "sp"),
        ),
        (
            CALL,
            ENGINE,
            (frame("openrlhf/engine.py", source="LLM(*args, **kwargs)"), VLLM),
            (Wanting.PACKAGE, "openrlhf", "vllm", "swap"),
        ),
        (
            CALL,
            "Trainer.training_step() takes 3 positional arguments but 4 were given",
            (USER, TRANSFORMERS),
            None,
        ),
        (CALL, ENGINE, (USER, TRL, VLLM), (Wanting.PACKAGE, "trl", "vllm", "swap")),
        (CALL, ENGINE, (TRL, USER, VLLM), (Wanting.SCRIPT, "", "vllm", "swap")),
        (CALL, ENGINE, (VLLM,), None),
        (
            CALL,
            FORWARD,
            (USER, frame("peft/a.py"), TRANSFORMERS, frame("torch/nn/modules/module.py")),
            None,
        ),
        (
            CALL,
            FORWARD,
            (USER, TRL),
            (Wanting.PACKAGE, "trl", "transformers", "position_embeddings"),
        ),
        (ATTRIBUTE, GATHER, (USER, TRL), (Wanting.PACKAGE, "trl", "deepspeed", "_hooks")),
        (ATTRIBUTE, GATHER.replace("ZeRoOffload", "Engine"), (USER, TRL), None),
        (CALL, LORA, (USER,), (Wanting.SCRIPT, "", "peft", "rank")),
        (CALL, CALLBACK, (USER, TRANSFORMERS), None),
        ("ValueError", LORA, (TRL,), None),
    ],
)
def test_who_wants_what(
    exception: str,
    message: str,
    frames: tuple[Frame, ...],
    expected: tuple[Wanting, str, str, str] | None,
) -> None:
    """The frames give the caller; the message gives the package."""
    record = FailureRecord(0, 0.0, f"builtins.{exception}", message, frames=frames)
    assert skew_of(record, next(record.raised())) == (expected and Skew(*expected))


@table(
    ("exception", "message", "expected"),
    [
        (IMPORT, CACHE, ("transformers", "transformers")),
        (
            IMPORT,
            f"cannot import name 'builder' from 'google.protobuf.internal' ({SITE}/google/x.py)",
            ("google", "protobuf.internal"),
        ),
        (IMPORT, "No module named 'torch._six'", ("torch", MODULES)),
        (ATTRIBUTE, "module 'PIL.Image' has no attribute 'ANTIALIAS'", ("PIL", "Image")),
        (
            ATTRIBUTE,
            "'MessageFactory' object has no attribute 'GetPrototype'",
            ("google", "MessageFactory"),
        ),
        (CALL, LORA, ("peft", "LoraConfig()")),
        (
            CALL,
            "hf_hub_download() got an unexpected keyword argument 'token'",
            ("huggingface_hub", "hf_hub_download"),
        ),
    ],
)
def test_what_lacks_it(exception: str, message: str, expected: tuple[str, str]) -> None:
    """The message names the module, class or function that should have the name."""
    record = FailureRecord(0, 0.0, f"builtins.{exception}", message, frames=(USER, TRL))
    skew = skew_of(record, next(record.raised()))
    assert skew is not None
    assert (skew.package, skew.owner) == expected


def test_a_cause_is_judged_by_its_own_frame() -> None:
    """A record's frames belong to its last exception."""
    cause = Raised("builtins.ImportError", CACHE, TRL)
    record = FailureRecord(0, 0.0, "builtins.RuntimeError", "gone", frames=(USER,), chain=(cause,))
    skew = skew_of(record, cause)
    assert skew is not None
    assert (skew.kind, skew.wanting) == (Wanting.PACKAGE, "trl")
    assert skew_of(record, Raised("builtins.ImportError", CACHE)) is None


def test_any_system_s_paths() -> None:
    """Windows paths, a checkout, and a checkout's example, which counts as a script."""
    for path, wanting in (
        (r"C:\env\Lib\site-packages\trl\core.py", "trl"),
        ("/workspace/trl/trl/trainer/core.py", "trl"),
        ("/workspace/trl/examples/sft.py", ""),
    ):
        record = FailureRecord(
            0, 0.0, "builtins.ImportError", CACHE, frames=(Frame(path, 1, "f", "x"),)
        )
        skew = skew_of(record, next(record.raised()))
        assert skew is not None
        assert skew.wanting == wanting


@table(
    ("name", "frames", "package"),
    [
        ("my_flag", (USER, frame("pytorch_lightning/utilities/argparse.py")), "pytorch_lightning"),
        ("my_flag", (USER, frame("lightning/pytorch/trainer/trainer.py")), "lightning"),
        ("my_flag", (USER, TRANSFORMERS), "transformers"),
        ("gpus", (USER,), "pytorch_lightning"),
        ("compute_loss_func", (USER,), "transformers"),
        ("my_flag", (USER,), None),
    ],
)
def test_whose_trainer_it_is(name: str, frames: tuple[Frame, ...], package: str | None) -> None:
    """The package in the traceback, else the one that had or has the name; or none."""
    assert package_of_class("Trainer", name, frames) == package
