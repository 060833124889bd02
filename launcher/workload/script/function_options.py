"""The options that the parameters of a function are, which the package Fire calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .bindings import default_of
from .dataclass_options import kind_of
from .expressions import Evaluator
from .option import Option
from .statements import Function, Site


def options_of_function(
    call: ast.Call, sites: Sequence[Site], evaluator: Evaluator
) -> Iterator[Option]:
    """The options of a script that calls `fire.Fire(function)`.

    Args:
        call: that call.
        sites: of all files.
        evaluator: of the script's files, without arguments.
    """
    name = ast.unparse(call.args[0]) if call.args else ""
    for site in sites:
        function = site.node
        if not isinstance(function, Function) or function.name != name:
            continue
        for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            node = default_of(function, each.arg)
            default = None if node is None else evaluator.value_or_unknown(node, site)
            kind = "" if each.annotation is None else kind_of(ast.unparse(each.annotation))
            yield Option((each.arg,), kind, default, site.file.place(node or function))
