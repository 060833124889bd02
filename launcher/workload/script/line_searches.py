"""Searches in the user's source files for the lines that a known failure is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeGuard

from ...core.source_location import Spot

REDUCTIONS = ("sum", "mean", "norm", "square", "pow", "abs")
FLATTENED = ("view", "reshape", "flatten", "ravel")
DETACHED = {"grad", "data", "shape", "size", "numel", "isnan", "isinf", "isfinite"}
"""Attributes and functions whose result takes no part in the graph."""
CUT_METHODS = {"item", "tolist", "detach", "numpy"}
CUT_FUNCTIONS = {"float", "int", "bool", "str", "round", "format", "print"}
"""What takes a value out of the graph."""
LOGGERS = {"add_scalar", "add_histogram", "debug", "info", "log", "warning", "write"}
"""Methods that tell a value where they are given a text or a mapping first."""
TEXTS = (ast.Constant, ast.JoinedStr, ast.Dict)
WITHOUT_GRAPH = ("no_grad", "inference_mode", "set_grad_enabled(False)", "GatheredParameters")
"""Contexts without a graph, or in which ZeRO-3's parameters are whole."""
PARAMETER_ITERATORS = ("parameters", "named_parameters")
SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that lay one model over all devices (accelerate/big_modeling.py)."""
GUARD = re.compile(
    r"rank|world|distributed|ddp|deepspeed|zero|fsdp|isinstance|hasattr|proc|is_main|local"
    r"|device_count|multi|single|infer|eval|test|version|bits|4bit|8bit|quant",
    re.IGNORECASE,
)
"""Words of a condition that may well keep what it guards out of a distributed run."""
ASIDE = re.compile(
    r"infer|eval|test|predict|generat|single|export|merge|check|compar|debug|stat|log_|verif|hash",
    re.IGNORECASE,
)
"""Words in the name of a function that isn't training."""


def spots(search: str, paths: Sequence[str]) -> tuple[Spot, ...]:
    """What the search of that name finds in the files; files that can't be parsed are skipped.

    Nothing where the files together name what makes such lines harmless.
    """
    parsed: list[tuple[str, list[str], ast.AST]] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            parsed.append((path, text.splitlines(), ast.parse(text)))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
    words = {word for _, _, tree in parsed for word in _words(tree)}
    if words & UNLESS.get(search, set()) or not ONLY_WITH.get(search, set()) <= words:
        return ()
    return tuple(
        Spot(path, number, text := lines[number - 1].strip(), changed(search, text))
        for path, lines, tree in parsed
        for number in dict.fromkeys(SEARCHES[search](tree))
    )


def _words(tree: ast.AST) -> set[str]:
    """All names, attributes, imports and texts of a file."""
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                words.add(word)
            case ast.alias(name=name):
                words |= {name, name.partition(".")[0]}
            case ast.ImportFrom(module=str(name)):
                words.add(name.partition(".")[0])
    return words


def parameter_reductions(tree: ast.AST) -> Iterator[int]:
    """Lines that reduce parameters outside a forward pass: `p.sum() for p in m.parameters()`.

    Covers comprehensions, generator expressions and `for` loops over `parameters()` or
    `named_parameters()` whose body reduces the loop's own variable. What is only told, in a log or
    a comparison, is left out.
    """
    cut = {id(part) for node in ast.walk(tree) if _is_cut(node) for part in ast.walk(node)}
    cut |= _only_told(tree, cut)
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            for clause in node.generators:
                if _iterates_parameters(clause.iter):
                    yield from _reductions(node.elt, _names(clause.target), cut)
        elif isinstance(node, ast.For) and _iterates_parameters(node.iter):
            for statement in node.body:
                yield from _reductions(statement, _names(node.target), cut)


def _only_told(tree: ast.AST, cut: set[int]) -> set[int]:
    """All parts of what is assigned to names that only cut parts use, but for losses."""
    used = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in cut
    }
    return {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in [node.targets[0] if isinstance(node, ast.Assign) else node.target]
        if isinstance(target, ast.Name) and target.id not in used and "loss" not in target.id
        for part in ast.walk(node)
    }


def _iterates_parameters(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in PARAMETER_ITERATORS
        for part in ast.walk(node)
    )


def _is_cut(node: ast.AST) -> bool:
    """Whether what a node computes takes no part in the graph."""
    match node:
        case ast.With(items=items):
            around = [item.context_expr for item in items]
        case ast.FunctionDef(name=name, decorator_list=decorators):
            if ASIDE.search(name):
                return True
            around = decorators
        case ast.Compare() | ast.JoinedStr():
            return True
        case ast.Call(args=arguments):
            name = _called(node)
            if isinstance(node.func, ast.Name):
                return name in CUT_FUNCTIONS
            told = isinstance(arguments[0], TEXTS) if arguments else False
            return name in CUT_METHODS or (name in LOGGERS and told)
        case _:
            return False
    return any(name in ast.unparse(one) for one in around for name in WITHOUT_GRAPH)


def _called(node: ast.Call) -> str:
    """The name of what a call calls, without what it is an attribute of."""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _reductions(node: ast.AST, names: set[str], cut: set[int]) -> Iterator[int]:
    """Lines of calls `name.sum()` and `torch.sum(name)`, and of `name.view(-1)[0]`.

    Reductions of gradients and of detached values (a gradient's norm, say) take no part in the
    graph and are left out.
    """
    for part in ast.walk(node):
        if id(part) not in cut and _is_reduction(part):
            leaves = [leaf for leaf in ast.walk(part) if id(leaf) not in cut]
            names_used = {leaf.id for leaf in leaves if isinstance(leaf, ast.Name)}
            attributes = {leaf.attr for leaf in leaves if isinstance(leaf, ast.Attribute)}
            if names_used & names and not attributes & DETACHED:
                yield part.lineno


def _is_reduction(node: ast.AST) -> TypeGuard[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in REDUCTIONS
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in FLATTENED
    return False


def device_maps(tree: ast.AST) -> Iterator[int]:
    """Lines that lay a model over all devices, in every rank: `device_map="auto"`."""
    for line, value in _keywords(tree, ("device_map",)):
        if isinstance(value, ast.Constant) and value.value in SPREAD:
            yield line


def device_map_arguments(tree: ast.AST) -> Iterator[int]:
    """Lines that give a model any map of devices."""
    for line, value in _keywords(tree, ("device_map",)):
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if is_text or isinstance(value, ast.Dict):
            yield line


def half_precision_loads(tree: ast.AST) -> Iterator[int]:
    """Lines that load the only model of a file in fp16."""
    loads = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and _called(node) == "from_pretrained"
        and re.search(r"Model|For[A-Z]", ast.unparse(node.func))
    ]
    if len(loads) == 1:
        for line, value in _keywords(loads[0], ("torch_dtype", "dtype")):
            if ast.unparse(value) in ("torch.float16", "torch.half", "'float16'"):
                yield line


def fixed_devices(tree: ast.AST) -> Iterator[int]:
    """Lines that send every rank to one device: `.to("cuda:0")`, `.cuda(0)`, `set_device(0)`."""
    for call in _unguarded_calls(tree):
        match call:
            case ast.Call(args=[ast.Constant(value=value)]):
                name = _called(call)
                is_named = isinstance(value, str) and bool(re.fullmatch(r"(cuda|npu):\d+", value))
                is_number = isinstance(value, int) and not isinstance(value, bool)
                if (is_named and name in ("to", "set_device")) or (
                    is_number and name in ("cuda", "npu", "set_device")
                ):
                    yield call.lineno


def no_sync_calls(tree: ast.AST) -> Iterator[int]:
    """Lines that enter a module's own `no_sync()`; accelerate's takes the model, and looks."""
    for call in _unguarded_calls(tree):
        if _called(call) == "no_sync" and isinstance(call.func, ast.Attribute) and not call.args:
            yield call.lineno


def frozen_block_inputs(tree: ast.AST) -> Iterator[int]:
    """Lines that put adapters into a model whose blocks then get inputs without a gradient."""
    for call in _unguarded_calls(tree):
        if _called(call) == "get_peft_model":
            yield call.lineno


def outdated_arguments(tree: ast.AST) -> Iterator[int]:
    """Lines that give transformers' arguments a name that they no longer have."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for call in _unguarded_calls(tree):
        if _called(call) in {"TrainingArguments", "Seq2SeqTrainingArguments"} - own:
            for keyword in call.keywords:
                if keyword.arg == "evaluation_strategy":
                    yield keyword.lineno


def _keywords(tree: ast.AST, names: Sequence[str]) -> Iterator[tuple[int, ast.expr]]:
    """Line and value of every argument of one of these names where a model is loaded."""
    for call in _unguarded_calls(tree):
        for keyword in call.keywords:
            if keyword.arg in names and _called(call) == "from_pretrained":
                yield keyword.lineno, keyword.value


def _unguarded_calls(node: ast.AST) -> Iterator[ast.Call]:
    """All calls, but those under a condition that may keep them out of a distributed run."""
    if isinstance(node, ast.If | ast.IfExp) and GUARD.search(ast.unparse(node.test)):
        return
    if isinstance(node, ast.FunctionDef) and ASIDE.search(node.name):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unguarded_calls(child)


SEARCHES: dict[str, Callable[[ast.AST], Iterator[int]]] = {
    "parameter_reductions": parameter_reductions,
    "device_maps": device_maps,
    "device_map_arguments": device_map_arguments,
    "half_precision_loads": half_precision_loads,
    "fixed_devices": fixed_devices,
    "no_sync_calls": no_sync_calls,
    "frozen_block_inputs": frozen_block_inputs,
    "outdated_arguments": outdated_arguments,
}
"""The searches that an entry's `points_at` may name."""

ADAPTED = {"get_peft_model", "PeftModel", "LoraConfig", "prepare_model_for_kbit_training"}
UNLESS: dict[str, set[str]] = {
    "half_precision_loads": {*ADAPTED, "float", "float32", "requires_grad", "requires_grad_"},
    "fixed_devices": {"CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"},
    "frozen_block_inputs": {
        "enable_input_require_grads",
        "gradient_checkpointing_enable",
        "prepare_model_for_kbit_training",
        "prepare_model_for_int8_training",
        "register_forward_hook",
        "requires_grad",
        "requires_grad_",
        "trl",
    },
}
"""Words that, anywhere in the user's files, make what a search finds harmless, or may."""
ONLY_WITH: dict[str, set[str]] = {"fixed_devices": {"DistributedDataParallel"}}
"""Words without which, in the user's files, what a search finds does no harm."""

FORMATTED = "f\"\\1:{os.environ['LOCAL_RANK']}\""
WITHOUT_MAP = (
    (r"""\s*device_map\s*=\s*(["']\w+["']|\{[^{}]*\})\s*,\s*""", " "),
    (r"""(,\s*)?device_map\s*=\s*(["']\w+["']|\{[^{}]*\})""", ""),
)
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "device_maps": WITHOUT_MAP,
    "device_map_arguments": WITHOUT_MAP,
    "half_precision_loads": (
        (r"torch\.(float16|half)\b", "torch.float32"),
        (r"""["']float16["']""", '"float32"'),
    ),
    "frozen_block_inputs": (
        (r"^\w+ *= *get_peft_model\( *([\w.]+) *,.*", r"\1.enable_input_require_grads(); \g<0>"),
    ),
    "outdated_arguments": ((r"\bevaluation_strategy\b", "eval_strategy"),),
    "fixed_devices": (
        (r"""["'](cuda|npu):\d+["']""", FORMATTED),
        (r"""\.(cuda|npu|set_device)\(\d+\)""", r""".\1(int(os.environ["LOCAL_RANK"]))"""),
    ),
}
"""What to replace in a line that a search has found; the first that applies."""


def changed(search: str, line: str) -> str | None:
    """The user's line as it should be; None where that can't be told from the line alone."""
    for pattern, replacement in CHANGES.get(search, ()):
        new, count = re.subn(pattern, replacement, line)
        if count:
            return new.replace("( ", "(").strip() or "(without this line)"
    return None
