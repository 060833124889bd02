"""Calls in a user's source: unguarded in a distributed run, or harmless between two imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that split a model over all devices (accelerate/big_modeling.py)."""
GUARD = re.compile(
    r"rank|world|distributed|ddp|deepspeed|zero|fsdp|isinstance|hasattr|proc|is_main|local"
    r"|device_count|multi|single|infer|eval|test|version|bits|4bit|8bit|quant",
    re.IGNORECASE,
)
"""Words in a condition that may exclude a distributed run."""
ASIDE = re.compile(
    r"infer|eval|test|predict|generat|single|export|merge|check|compar|debug|stat|log_|verif|hash",
    re.IGNORECASE,
)
"""Words in names of functions that don't train."""
HARMLESS = (
    {"bool", "dict", "float", "int", "list", "set", "str", "tuple"}
    | {"getattr", "hasattr", "len", "open", "print"}
    | {"argparse", "collections", "datetime", "functools", "json", "logging", "os", "pathlib"}
    | {"Path", "random", "re", "sys", "time", "typing", "uuid", "warnings"}
    | {"np", "numpy", "torch"}
)
"""First part of the names of calls without an effect on later imports. Calls that change the
environment are in `WRITERS`."""
WRITERS = {
    "os.environ.clear",
    "os.environ.pop",
    "os.environ.popitem",
    "os.environ.setdefault",
    "os.environ.update",
    "os.environ.__setitem__",
    "os.putenv",
    "os.unsetenv",
}
"""Calls that change the environment."""
FINDERS = ("sys.path", "sys.modules", "sys.meta_path")
"""Names that affect where modules are found: afterwards a name may mean another module."""
COLLECTIVES = "torch.distributed"
"""Prefix of calls after which a worker can't be re-executed for an environment variable."""
SEEDS = ("seed", "manual_seed", "manual_seed_all")
"""Calls that seed a random generator, which a later import may use."""
SEARCHED_LAST = ("sys.path.append", "sys.path.extend")
"""Calls that don't affect where installed modules are found."""


def device_maps(tree: ast.AST) -> Iterator[int]:
    """Lines that split a model over all devices in every rank: `device_map="auto"`."""
    for line, value in _keywords(tree, ("device_map",)):
        if isinstance(value, ast.Constant) and value.value in SPREAD:
            yield line


def device_map_arguments(tree: ast.AST) -> Iterator[int]:
    """Lines that pass a device map to a model."""
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
        and called(node) == "from_pretrained"
        and re.search(r"Model|For[A-Z]", ast.unparse(node.func))
    ]
    if len(loads) == 1:
        for line, value in _keywords(loads[0], ("torch_dtype", "dtype")):
            if ast.unparse(value) in ("torch.float16", "torch.half", "'float16'"):
                yield line


def fixed_devices(tree: ast.AST) -> Iterator[int]:
    """Lines that put every rank on one device: `.to("cuda:0")`, `.cuda(0)`, `set_device(0)`."""
    for call in _unguarded_calls(tree):
        match call:
            case ast.Call(args=[ast.Constant(value=value)]):
                name = called(call)
                is_named = isinstance(value, str) and bool(re.fullmatch(r"(cuda|npu):\d+", value))
                is_number = isinstance(value, int) and not isinstance(value, bool)
                if (is_named and name in ("to", "set_device")) or (
                    is_number and name in ("cuda", "npu", "set_device")
                ):
                    yield call.lineno


def no_sync_calls(tree: ast.AST) -> Iterator[int]:
    """Lines that enter a module's `no_sync()`; accelerate's takes the model and checks it."""
    for call in _unguarded_calls(tree):
        if called(call) == "no_sync" and isinstance(call.func, ast.Attribute) and not call.args:
            yield call.lineno


def calls_of(tree: ast.AST, name: str) -> Iterator[int]:
    """Lines that call a function of that name."""
    return (call.lineno for call in _unguarded_calls(tree) if called(call) == name)


def outdated_arguments(tree: ast.AST) -> Iterator[int]:
    """Lines that use removed names of transformers arguments."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for call in _unguarded_calls(tree):
        if called(call) in {"TrainingArguments", "Seq2SeqTrainingArguments"} - defined:
            for keyword in call.keywords:
                if keyword.arg == "evaluation_strategy":
                    yield keyword.lineno


def _keywords(tree: ast.AST, names: Sequence[str]) -> Iterator[tuple[int, ast.expr]]:
    """Line and value of these arguments in calls that load a model."""
    for call in _unguarded_calls(tree):
        for keyword in call.keywords:
            if keyword.arg in names and called(call) == "from_pretrained":
                yield keyword.lineno, keyword.value


def _unguarded_calls(node: ast.AST) -> Iterator[ast.Call]:
    """All calls except those under a condition that may prevent them in a distributed run."""
    if isinstance(node, ast.If | ast.IfExp) and GUARD.search(ast.unparse(node.test)):
        return
    if isinstance(node, ast.FunctionDef) and ASIDE.search(node.name):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unguarded_calls(child)


def called(node: ast.Call) -> str:
    """The name of a called function, without its owner."""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def is_harmless(value: ast.expr) -> bool:
    """Whether no call in an expression can affect a later import."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(
        _is_harmless_name(dotted(call.func)) and not writes_environment(call) for call in calls
    )


def _is_harmless_name(name: str) -> bool:
    """Whether a call of that name can't affect a later import."""
    return name in SEARCHED_LAST or (
        name.partition(".")[0] in HARMLESS
        and name.rpartition(".")[2] not in SEEDS
        and not name.startswith((*FINDERS, COLLECTIVES))
    )


def dotted(node: ast.expr) -> str:
    """The name that an expression of names and attributes spells; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            head = dotted(value)
            return f"{head}.{name}" if head else ""
    return ""


def writes_environment(node: ast.AST) -> bool:
    """Whether a statement or call changes the environment."""
    match node:
        case ast.Assign(targets=targets):
            return any("environ" in ast.unparse(target) for target in targets)
        case ast.Call(func=function):
            return ast.unparse(function) in WRITERS
    return False
