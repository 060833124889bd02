"""Recognizes mistakes with a wrapped or sharded model: the engine's methods, two dtypes, a part."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, package_of_file, pip_name
from ...catalogue.version_skew import NO_MODEL, OF_ENGINE
from .misfit import ATTRIBUTE, PLAIN
from .ranks import world_sizes
from .step import Case, Step

WRAPPERS = ("DistributedDataParallel", "DataParallel")
TRAINS = re.compile(r"\.(?:train|fit|step|evaluate|predict)\(")
"""A call of a trainer's own loop."""
BACKWARD = re.compile(r"(?:loss\w*|\bautograd)\.backward\(")
GATHERED = ("all_gather_coalesced", "_all_gather_dtype", "get_only_unique_item", "defragment")
"""Functions of DeepSpeed that gather several weights in one operation."""
UNIQUE = re.compile(
    r"\bset\(\w+\.dtype for |only one unique element|same (?:data ?)?(?:d?type)"
    r"|uniform (?:\w+ )*dtype"
)
DTYPES = re.compile(r"\bdtypes?\b|\bscalar type\b|\bdata types?\b", re.IGNORECASE)
DTYPE = re.compile(r"(?:torch\.|c10::)?\b(b?float(?:16|32)?|half|double|u?int8)\b", re.IGNORECASE)
QUANTIZED = re.compile(
    r"load_in_8bit|load_in_4bit|\bint8\b|8[- ]?bit|4[- ]?bit|bitsandbytes|nf4", re.I
)
LOOPS = ("transformers", "accelerate", "lightning", "pytorch_lightning", "trl")
"""Frameworks whose training loop may leave gradients in another type."""
SHAPES = re.compile(
    r"(?:[Ss]hapes?|[Ss]izes?|Size|got|compatible with|is|of|and)\W{1,4}[\[(](\d+(?:,"
    r" ?\d+)*),?[\])]"
    r"|\b(?:tensor [ab]|existing size|size of the tensor) \((\d+)\)|for input of size (\d+)$"
)
SHARDING = re.compile(r"zero|fsdp|deepspeed|shard|stage[ _]?3|\'weight\'", re.I)
"""Words that indicate sharded weights."""
RESUMES = re.compile(r"resum|checkpoint|load_state|optimizer|\u52a0\u8f7d|\u65ad\u70b9", re.I)
FLAT = 1_000_000
"""Elements above which a vector is a flattened piece of a model."""
SHAPED = re.compile(r"shape|size|mismatch|dimension|numel|elements", re.I)


def bare_model(case: Case) -> Step | None:
    """Advises to hand over the engine instead of the model, or the model instead of a wrapper."""
    match = ATTRIBUTE.match(case.message) if case.kind == "AttributeError" else None
    if match is not None and match["type"] in WRAPPERS:
        return _wrapped_model(case, match["type"], match["name"])
    if match is None or match["type"] in PLAIN or NO_MODEL.search(match["type"]):
        return None
    if match["name"] == "module" and case.users_frame is not None and _asking(case) is None:
        return Step(
            'Take the model inside its wrapper if it has one, `getattr(model, "module", model)`, or'
            f" wrap it before this line: here it is the bare `{match['type']}`, as in a run of one"
            " process."
        )
    if not OF_ENGINE.fullmatch(match["name"]):
        return None
    return Step(
        f"Hand over the DeepSpeed engine that `initialize` or `prepare` returned, instead of the"
        f" bare model: `{match['name']}` is the engine's, and `{match['type']}` is the unwrapped"
        " model inside it. If a trainer hands it over while it saves, upgrade that (trl, the"
        " trainer's package), override its `save_model` so that `self.deepspeed` stays the engine,"
        " or use ZeRO-2, which saves without gathering."
    )


def bypassed_engine(case: Case) -> Step | None:
    """A loop's own backward pass through a model of DeepSpeed's, without its engine's method."""
    passes = [place for place, frame in enumerate(case.frames) if BACKWARD.search(frame.source)]
    loop = next((p for p in passes if package_of_file(case.frames[p].file) is None), None)
    if loop is None:
        return None
    frame, within = case.frames[loop], case.frames[loop + 1 :]
    is_handed_on = any(f.is_of("engine.py") or package_of_file(f.file) in LOOPS for f in within)
    if is_handed_on or not any("deepspeed/runtime/zero/" in f.file for f in within):
        return None
    return Step(
        "Call the engine's methods, `engine.backward(loss)` and `engine.step()`, instead of"
        f" `{frame.source}` in line {frame.line} of {frame.file}: the engine prepares there what"
        " its hooks use in this pass. Newer DeepSpeed takes a loss's own backward, too."
    )


def _asking(case: Case) -> str | None:
    """The package that asks a module for what it lacks; None for the script."""
    asking = [f for f in case.frames if not f.is_of("torch/nn/modules/module.py")][-1:]
    return package_of_file(asking[0].file) if asking else None


def _wrapped_model(case: Case, wrapper: str, name: str) -> Step | None:
    """A package that the script has handed a wrapper asks it for what only the model has."""
    package = _asking(case)
    caller = case.users_frame
    if package in (None, PYTHON, MODEL_CODE) or caller is None:
        return None
    why = f"{package} asks the {wrapper} for `{name}`, which only the model inside has."
    if TRAINS.search(caller.source) and wrapper == "DataParallel":
        return Step(
            "Start one process for each device (`torchrun --nproc-per-node N SCRIPT`), or show the"
            " process one: `CUDA_VISIBLE_DEVICES=0`. As it sees several, its model was wrapped in"
            f" DataParallel, and {why}"
        )
    if TRAINS.search(caller.source):  # the package's own loop has wrapped it
        newest = f"`pip install -U {pip_name(package)}`"
        return Step(f"Upgrade {package} ({newest}), or train on one device: {why}")
    return Step(
        f"Make the call in line {caller.line} of {caller.file} before the model is wrapped, or hand"
        f" over the model inside, `model.module`: {why}"
    )


def mixed_dtypes(case: Case) -> Step | None:
    """Names the tensors with two dtypes, and how to give them one."""
    functions = {frame.function for frame in case.frames[-4:]}
    if functions & {*GATHERED} and UNIQUE.search(case.message):
        return _gathered(case)
    is_of_optimizer = case.frame is not None and "torch/optim/" in case.frame.file
    if is_of_optimizer and DTYPES.search(case.message):
        return _of_optimizer(case)
    return None


def _gathered(case: Case) -> Step:
    bits = (
        "Load the base model in bf16 or fp16, not in 8 or 4 bit, or keep it and use ZeRO-2 or DDP"
        if QUANTIZED.search(case.around)
        else "Cast the whole model to one dtype before it is wrapped (`model.to(torch.bfloat16)`;"
        " PEFT: `autocast_adapter_dtype=False`), or don't load it in 8 bit, or use ZeRO-2"
    )
    return Step(
        f"{bits}: ZeRO-3 gathers a module's weights in one operation, and here they have several"
        " dtypes, as adapters in float32 beside a base in bfloat16 or int8."
    )


def _of_optimizer(case: Case) -> Step:
    types = list(dict.fromkeys(text.lower() for text in DTYPE.findall(case.message)))[:2]
    which = f" ({' and '.join(types)})" if len(types) > 1 else ""
    names = (package_of_file(frame.file) for frame in case.frames)
    loops = [name for name in dict.fromkeys(names) if name in LOOPS]
    release = (
        f"Upgrade {' and '.join(loops)} (`pip install -U {' '.join(map(pip_name, loops))}`), or go"
        f" back to the {loops[0]} of the release before: its loop leaves the gradients in another"
        " dtype"
        if loops
        else "Load the weights in float32 and let `bf16` be autocast, or make the optimizer after"
        " the last cast of the model: the gradients have another dtype"
    )
    return Step(f"{release} than the optimizer's state{which}.")


def sharded(case: Case) -> Step | None:
    """Two shapes of which one is empty or a shard of the other."""
    if SHAPED.search(case.message) is None:
        return None
    shapes = [
        tuple(map(int, re.findall(r"\d+", "".join(match))))
        for match in SHAPES.findall(case.message)
    ]
    pairs = [(a, b) for at, a in enumerate(shapes) for b in shapes[at + 1 :]]
    is_divided = SHARDING.search(case.around) is not None
    if is_divided and any((0 in a) != (0 in b) for a, b in pairs):
        return Step(
            "One of the two tensors is empty, mostly since this rank has only a placeholder of a"
            " sharded weight (ZeRO-3 or FSDP). Gather it first"
            " (`deepspeed.zero.GatheredParameters`, FSDP's full state dict), and save checkpoints"
            " by the framework's own function, which gathers."
        )
    sizes = world_sizes(case)
    for a, b in pairs:
        ratio = _ratio(a, b)
        if ratio and ratio in sizes:
            return Step(
                f"The shapes differ by the factor {ratio}, which is the number of ranks: one is the"
                " whole, the other a rank's part. Load and save it with the sharding that it was"
                " made with, or gather it first."
            )
        is_flat = ratio and is_divided and len(a) == 1 and min(*a, *b) > FLAT
        if is_flat and not case.is_users and RESUMES.search(case.around):
            return Step(
                f"Resume with as many ranks as wrote the checkpoint, or load the model's weights"
                f" alone and begin with a new optimizer state: one flat piece has {ratio} times the"
                " elements of the other, mostly as ZeRO or FSDP divided it among another number of"
                " ranks. DeepSpeed converts such a checkpoint (`ds_to_universal.py`)."
            )
    return None


def _ratio(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """The integer ratio of two shapes that differ in a single size, if any."""
    if len(a) != len(b):
        return None
    different = [(max(x, y), min(x, y)) for x, y in zip(a, b, strict=True) if x != y]
    if len(different) != 1 or not different[0][1]:
        return None
    large, small = different[0]
    return large // small if large % small == 0 else None
