"""The calls in a script's source whose arguments decide settings, and what they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.model import output_of
from .expressions import Evaluator
from .known_values import NotKnown, Unknown
from .statements import Site
from .unguarded_calls import called

TRAINING = re.compile(
    r"(^|Seq2Seq|[a-z])TrainingArguments$"
    r"|^(SFT|DPO|KTO|ORPO|CPO|BCO|GRPO|RLOO|PPO|PPOv2|OnlineDPO|XPO|NashMD|GKD|PRM|Reward)Config$"
)
"""transformers' arguments of its Trainer, and trl's, which inherit from them."""
RANK = 8
"""peft's default of LoraConfig.r (peft/tuners/lora/config.py)."""
LOADED_IN = ("load_in_4bit", "load_in_8bit")
"""Arguments of bitsandbytes' configuration, and of loading in older versions of transformers."""
MODEL = re.compile(r"Model|For[A-Z]|LM")
TOWER = re.compile(r"CLIP|Siglip|Vision(Model|Tower)|Audio(Model|Tower)|Autoencoder")
"""Classes of parts that are loaded on their own, beside the language model."""
CHECKPOINTED = (
    *("gradient_checkpointing_enable", "activation_checkpointing_enable"),
    *("prepare_model_for_kbit_training", "prepare_model_for_int8_training"),
    *("enable_gradient_checkpointing", "_set_gradient_checkpointing", "set_grad_checkpointing"),
    *("checkpoint", "checkpoint_sequential"),
)
"""Calls that have activations recomputed: transformers' and peft's, which take the installed
transformers' implementation, then diffusers', timm's and torch's."""
LOADING = ("from_pretrained", "from_config")
HANDED_ON = ("attn_implementation", "device_map", *LOADED_IN)
"""Arguments of loading a model that mean the same as a flag of their name."""
OF_TRANSFORMERS = CHECKPOINTED[:4]
OPTIMIZERS = re.compile(r"^(Fused|DeepSpeedCPU|Paged)*(Adam|AdamW|Lamb|SGD|Lion|Adafactor)(8bit)?$")

ANYTHING = "**"
"""Stands for all arguments of a call that is given a dict that isn't known."""
Found = tuple[str, Any, Site, ast.expr]
"""Name, value, where, and the part of the source that says it."""


def found_in_calls(evaluator: Evaluator, bases: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """All that the calls say; the value is `Unknown` where it depends on the run.

    Args:
        evaluator: of the script's files.
        bases: names of the classes that the script's own classes inherit from.
    """
    yield from _training(evaluator, bases)
    yield from _trained_by(evaluator, bases)
    for find in (_lora, _quantized, _loaded, _checkpointed, _accelerated, _sharded, _made):
        yield from find(evaluator)


def _training(evaluator: Evaluator, bases: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """Arguments of the Trainer that the source makes itself."""
    for site, call, is_sure in reached_calls(evaluator, lambda name: is_training(name, bases)):
        yield from _words(evaluator, site, call, is_sure=is_sure)


def _trained_by(evaluator: Evaluator, bases: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """The class of the Trainer; for one of the script's own, what it inherits from."""
    for site, call, is_sure in reached_calls(evaluator, lambda name: name.endswith("Trainer")):
        name, seen = called(call), set[str]()
        while name in bases and bases[name] and name not in seen:
            seen.add(name)
            name = bases[name][0]
        yield "source_trainer", name if is_sure else Unknown(), site, call


def _lora(evaluator: Evaluator) -> Iterator[Found]:
    """Rank, targets and whole modules of LoRA, and whether ties are kept."""
    for site, call, is_sure in reached_calls(evaluator, lambda name: name == "LoraConfig"):
        words = {
            name: found
            for found in _words(evaluator, site, call, is_sure=is_sure)
            for name in found[:1]
        }
        rank = words.get("r", ("r", RANK if is_sure else Unknown(), site, call))
        yield "lora_rank", *rank[1:]
        for name in ("target_modules", "modules_to_save", "ensure_weight_tying"):
            if name in words and words[name][1] is not None:
                yield words[name]


def _quantized(evaluator: Evaluator) -> Iterator[Found]:
    kinds = {"BitsAndBytesConfig": LOADED_IN, "GPTQConfig": ("bits",)}
    for site, call, is_sure in reached_calls(evaluator, lambda name: name in kinds):
        for found in _words(evaluator, site, call, is_sure=is_sure):
            if found[0] in kinds[called(call)]:
                yield found


def _loaded(evaluator: Evaluator) -> Iterator[Found]:
    """Type, attention and devices that the model is loaded with, and what it puts out."""
    for site, call, is_sure in reached_calls(evaluator, LOADING.__contains__):
        owner = ast.unparse(call.func).rpartition(".")[0]
        if not MODEL.search(owner) or TOWER.search(owner):
            continue
        if output := output_of(owner):
            yield "source_output", output.value if is_sure else Unknown(), site, call
        for name, value, *rest in _words(evaluator, site, call, is_sure=is_sure):
            if name in ("torch_dtype", "dtype") and value is not None:
                yield "torch_dtype", value, *rest
            elif name in HANDED_ON and value is not None:
                yield name, value, *rest


def _checkpointed(evaluator: Evaluator) -> Iterator[Found]:
    """Whether the source itself has activations recomputed, and by which implementation."""
    asked: list[tuple[Any, Site, ast.expr]] = []
    for site, call, is_sure in reached_calls(evaluator, lambda name: name in CHECKPOINTED):
        name = called(call)
        if name.startswith("checkpoint") and not _is_torchs(call):
            continue
        if any(function.name == name for function in site.functions):
            continue  # a method that hands on what others call it for
        words = {name: value for name, value, *_ in _words(evaluator, site, call, is_sure=True)}
        older = words.get("gradient_checkpointing_kwargs")
        kwargs = words.get("activation_checkpointing_kwargs", older)
        if name in OF_TRANSFORMERS[:2] and call.args:
            kwargs = evaluator.value_or_unknown(call.args[0], site)
        mode = kwargs.get("use_reentrant") if isinstance(kwargs, dict) else None
        mode = words.get("use_reentrant", mode)
        if mode is not None:
            yield "source_use_reentrant", mode, site, call
        elif name in OF_TRANSFORMERS:
            yield "source_transformers_checkpointing", True, site, call
        switch = words.get("use_gradient_checkpointing", True)
        if is_sure or not name.startswith("checkpoint"):
            asked.append((switch if is_sure else Unknown(), site, call))
    for site in evaluator.sites:
        match site.node:
            case ast.Assign(targets=[ast.Attribute(attr="gradient_checkpointing", value=owner)]):
                is_module = isinstance(owner, ast.Name) and owner.id == "self"
                if not evaluator.is_arguments(owner) and not is_module:
                    asked.append((_truth(evaluator, site), site, owner))
    for value in (True, Unknown()):
        for said, site, node in asked:
            if said == value:
                yield "source_checkpointing", value, site, node
                return


def _truth(evaluator: Evaluator, site: Site) -> Any:
    """Whether an assignment of a truth is reached and says yes."""
    try:
        if not isinstance(site.node, ast.Assign) or not evaluator.is_reached(site):
            return False
        return evaluator.value(site.node.value, site) is True
    except NotKnown:
        return Unknown()


def _is_torchs(call: ast.Call) -> bool:
    """Whether a call of `checkpoint` looks like torch's: a function, and its arguments."""
    return len(call.args) > 1 or any(word.arg == "use_reentrant" for word in call.keywords)


def _accelerated(evaluator: Evaluator) -> Iterator[Found]:
    """What accelerate is told, and the DeepSpeed configuration that the source makes."""
    for site, call, is_sure in reached_calls(evaluator, lambda name: name == "Accelerator"):
        for found in _words(evaluator, site, call, is_sure=is_sure):
            if found[0] in ("mixed_precision", "gradient_accumulation_steps") and found[1]:
                yield found
    for site, call, is_sure in reached_calls(evaluator, lambda name: name == "initialize"):
        if ast.unparse(call.func).startswith("deepspeed."):
            for name, value, *rest in _words(evaluator, site, call, is_sure=is_sure):
                if name in ("config", "config_params") and value is not None:
                    yield "deepspeed_config", value, *rest


def _sharded(evaluator: Evaluator) -> Iterator[Found]:
    """The version of FSDP that the source applies, and what it tells it."""
    versions = {"fully_shard": 2, "FullyShardedDataParallel": 1, "FSDP": 1}
    for site, call, is_sure in reached_calls(evaluator, versions.__contains__):
        yield "source_fsdp_version", versions[called(call)] if is_sure else Unknown(), site, call
        for name, value, *rest in _words(evaluator, site, call, is_sure=is_sure):
            if name == "reshard_after_forward":
                yield f"source_{name}", value, *rest
    for site, call, is_sure in reached_calls(
        evaluator, lambda name: name == "MixedPrecisionPolicy"
    ):
        for name, value, *rest in _words(evaluator, site, call, is_sure=is_sure):
            if name in ("param_dtype", "reduce_dtype"):
                yield f"source_{name}", value, *rest


def _made(evaluator: Evaluator) -> Iterator[Found]:
    """The batch of the loader of the training's data, and the optimizer."""
    for site, call, is_sure in reached_calls(evaluator, lambda name: name == "DataLoader"):
        head = f"{ast.unparse(call.args[0]) if call.args else ''} {_target(site, evaluator)}"
        if "train" in head and "prompt" not in head:  # whose answers are generated
            for found in _words(evaluator, site, call, is_sure=is_sure):
                if found[0] == "batch_size":
                    yield "loader_batch_size", *found[1:]
    for site, call, is_sure in reached_calls(evaluator, lambda name: bool(OPTIMIZERS.match(name))):
        momentum = {word.arg for word in call.keywords} & {"momentum"}
        name = called(call).lower() + "_momentum" * bool(momentum)
        yield "source_optimizer", name if is_sure else Unknown(), site, call


def _target(site: Site, evaluator: Evaluator) -> str:
    """The name that a call's result is given to."""
    for other in evaluator.sites:
        match other.node:
            case ast.Assign(targets=[target], value=value) if value is site.node:
                return ast.unparse(target)
    return ""


def reached_calls(
    evaluator: Evaluator, names: Callable[[str], bool]
) -> Iterator[tuple[Site, ast.Call, bool]]:
    """Calls of such a name that are reached or may be, and whether they are for certain."""
    for site in evaluator.sites:
        if isinstance(site.node, ast.Call) and names(called(site.node)):
            is_reached = evaluator.reaches(site)
            if is_reached is not False:
                yield site, site.node, is_reached is True


def _words(evaluator: Evaluator, site: Site, call: ast.Call, *, is_sure: bool) -> Iterator[Found]:
    """The arguments of a call; all are unknown where it may not be reached."""
    nodes = {word.arg: word.value for word in call.keywords if word.arg}
    try:
        keywords = evaluator.keywords(call, site)
    except NotKnown:
        keywords = {name: Unknown() for name in (*nodes, ANYTHING)}
    for name, value in keywords.items():
        yield name, value if is_sure else Unknown(), site, nodes.get(name, call)


def is_training(name: str, bases: Mapping[str, Sequence[str]]) -> bool:
    """Whether a class is one of training arguments, or inherits from one; not by its name alone."""
    seen: set[str] = set()
    names = [name]
    for each in names:
        above = bases.get(each)
        if TRAINING.search(each) and (above is None or each in above):
            return True
        if each not in seen:
            seen.add(each)
            names += bases.get(each, ())
    return False
