"""What an expression of a script's source comes to, found without running anything.

A value is known where it is made of literals, of names that are bound to such, and of the script's
arguments. What depends on anything else raises `NotKnown`: it is never guessed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .bindings import argument_of, default_of, is_spread, parameters
from .harmless_calls import dotted
from .known_values import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    METHODS,
    OF_ELASTIC,
    WORLD,
    Built,
    NotKnown,
    Unknown,
    applied,
)
from .site_index import SiteIndex, index
from .statements import Function, Site
from .unguarded_calls import called

ARGUMENTS = re.compile(r"(^|_)(args?|arguments|opts?|options|flags|hparams|cfg)$", re.IGNORECASE)
"""Names that hold the parsed arguments, whoever has parsed them."""
CERTAINTY = (False, None, True)
"""Whether something is reached, from never to for certain."""


@dataclass(frozen=True)
class Evaluator:
    """Finds values in a script's source.

    Attributes:
        sites: all statements and calls of the script's files that may be reached.
        arguments: values of the script's arguments by name, as its parser makes them.
        world: number of workers.
        holders: names that the result of parsing the arguments is given to; functions that Fire
            gives them to as parameters.
        selves: ids of the nodes that stand for the arguments in methods of their own classes.
    """

    sites: Sequence[Site]
    arguments: Mapping[str, Any]
    world: int
    holders: Set[str] = frozenset()
    selves: Set[int] = frozenset()
    _called: dict[int, bool | None] = field(default_factory=dict, init=False)
    _found: dict[tuple[int, int], Any] = field(default_factory=dict, init=False)
    _index: SiteIndex = field(default_factory=SiteIndex, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", index(self.sites))

    def is_reached(self, site: Site) -> bool:
        """Whether all conditions around a statement, and around the calls of its function, hold.

        Raises:
            NotKnown: one of them depends on the run, and none is known not to hold.
        """
        is_sure = self._is_called(site)
        if is_sure is False:
            return False
        for condition in site.conditions:
            try:
                if condition.test is None:
                    raise NotKnown
                if bool(self.value(condition.test, site)) is not condition.holds:
                    return False
            except NotKnown:
                is_sure = False
        if not is_sure:
            raise NotKnown
        return True

    def _is_called(self, site: Site) -> bool | None:
        """Whether the function around a statement is called; None where that isn't known.

        One that nothing calls by name is called by what it is handed to, or by a framework.
        """
        if not site.functions:
            return True
        function = site.functions[-1]
        if id(function) not in self._called:
            self._called[id(function)] = False  # a call by itself doesn't count
            places = self._index.defined.get(function.name, [])
            found = [self.reaches(each) for each in self._index.callers_of(function)] or [True]
            around = [self.reaches(each) for each in places if each.node is function]
            answers = (max(found, key=CERTAINTY.index), *around)
            self._called[id(function)] = min(answers, key=CERTAINTY.index)
        return self._called[id(function)]

    def reaches(self, site: Site) -> bool | None:
        """The same; None where it depends on the run."""
        try:
            return self.is_reached(site)
        except NotKnown:
            return None

    def value(self, node: ast.expr, site: Site) -> Any:
        """What an expression comes to where it stands.

        Raises:
            NotKnown: it depends on the run, or on itself.
        """
        key = (id(node), id(site.node))
        if key not in self._found:
            self._found[key] = Unknown()  # while it is looked for
            with suppress(NotKnown, RecursionError, TypeError):  # it would raise there as well
                self._found[key] = self._value(node, site)
        if isinstance(self._found[key], Unknown):
            raise NotKnown
        return self._found[key]

    def _value(self, node: ast.expr, site: Site) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id="__name__"):
                return "__main__" if site.file.is_script else site.file.path.stem
            case ast.Name(id="TYPE_CHECKING"):
                return False
            case ast.Name(id=name):
                return self._name(name, site)
            case ast.Attribute(attr=name):
                return self._attribute(node, name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [self.value(part, site) for part in parts]
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, site)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                is_true = self.value(test, site)
                return self.value(body if is_true else orelse, site)
            case ast.BoolOp(values=parts):
                return self._choice(parts, site, is_or=isinstance(node.op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand, site)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return applied(operator.neg, self.value(operand, site))
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                both = (self.value(left, site), self.value(right, site))
                return applied(COMPARISONS[type(kind)], *both)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
                both = (self.value(left, site), self.value(right, site))
                return applied(ARITHMETIC[type(sign)], *both)
            case ast.Subscript(value=whole, slice=key):
                both = (self.value(whole, site), self.value(key, site))
                return applied(operator.getitem, *both)
            case ast.Call():
                return self._call(node, site)
        raise NotKnown

    def keywords(self, call: ast.Call, site: Site) -> dict[str, Any]:
        """The arguments of a call by name, dicts after `**` spread out; `Unknown` where unknown.

        Raises:
            NotKnown: not even their names are known.
        """
        found: dict[str, Any] = {}
        for word in call.keywords:
            value = self.value_or_unknown(word.value, site)
            if word.arg is not None:
                found[word.arg] = value
            elif isinstance(value, dict):
                found |= value
            else:
                raise NotKnown
        return found

    def reached_value(self, node: ast.expr, site: Site) -> Any:
        """The same of a statement that has to be reached for it: else `Unknown` as well."""
        try:
            return self.value_or_unknown(node, site) if self.is_reached(site) else Unknown()
        except NotKnown:
            return Unknown()

    def value_or_unknown(self, node: ast.expr, site: Site) -> Any:
        """What an expression comes to; `Unknown` where it depends on the run."""
        try:
            return self.value(node, site)
        except NotKnown:
            return Unknown()

    def _attribute(self, node: ast.Attribute, name: str) -> Any:
        whole = dotted(node)
        if whole.startswith("torch.") and whole.count(".") == 1:
            return whole
        value = self.arguments.get(name, Unknown()) if self.is_arguments(node.value) else Unknown()
        if isinstance(value, Unknown):
            raise NotKnown
        return value

    def is_arguments(self, node: ast.expr) -> bool:
        """Whether an expression stands for the script's parsed arguments."""
        name = dotted(node).removeprefix("self.")
        if id(node) in self.selves:
            return True
        return name in self.holders or ("." not in name and bool(ARGUMENTS.search(name)))

    def _dict(
        self,
        keys: Sequence[ast.expr | None],
        values: Sequence[ast.expr],
        site: Site,
    ) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if key is None:
                found |= applied(dict, self.value(value, site))
            else:
                found[self.value(key, site)] = self.value_or_unknown(value, site)
        return found

    def _choice(self, parts: Sequence[ast.expr], site: Site, *, is_or: bool) -> Any:
        """`and`, `or`: what is known may decide beside what isn't, unless its value is asked."""
        values = [self.value_or_unknown(part, site) for part in parts]
        known = [value for value in values if not isinstance(value, Unknown)]
        deciding = [value for value in known if bool(value) is is_or]
        if len(known) == len(values):
            return deciding[0] if deciding else values[-1]
        if deciding and not is_or:
            return False
        raise NotKnown

    def _call(self, node: ast.Call, site: Site) -> Any:
        name = called(node)
        if ast.unparse(node).startswith(OF_ELASTIC):
            return str(self.world)
        if isinstance(node.func, ast.Attribute) and name in METHODS:
            owner = self.value(node.func.value, site)
            if not isinstance(owner, str | dict):
                raise NotKnown
            values = [self.value(argument, site) for argument in node.args]
            return applied(operator.methodcaller(name, *values), owner)
        if name in WORLD:
            return self.world
        if name == "getattr" and len(node.args) > 1:
            return self._getattr(node.args, site)
        if isinstance(node.func, ast.Name) and name in FUNCTIONS:
            values = [self.value(argument, site) for argument in node.args]
            words = self.keywords(node, site) if name == "dict" else {}
            return applied(lambda *each: FUNCTIONS[name](*each, **words), *values)
        if isinstance(node.func, ast.Name) and len(self._index.defined.get(name, ())) == 1:
            return self._returned(self._index.defined[name][0].node)
        if name[:1].isupper():
            return Built(name, self.keywords(node, site))
        raise NotKnown

    def _getattr(self, words: Sequence[ast.expr], site: Site) -> Any:
        name = self.value(words[1], site)
        if isinstance(name, str) and name.isidentifier():
            attribute = ast.Attribute(words[0], name, ast.Load())
            return self._attribute(attribute, name)
        raise NotKnown

    def _returned(self, function: ast.AST) -> Any:
        """What a function of the user's returns, if it has a single `return`."""
        returns = [
            site
            for site in self.sites
            if isinstance(site.node, ast.Return)
            and site.functions
            and site.functions[-1] is function
        ]
        if len(returns) == 1 and isinstance(returns[0].node, ast.Return):
            value = returns[0].node.value
            if value is not None:
                return self.value(value, returns[0])
        raise NotKnown

    def _name(self, name: str, site: Site) -> Any:
        """What a name stands for: in the function, in those around it, or in the file."""
        for function in reversed(site.functions):
            if (id(function), name) in self._index.bound:
                return self._last(self._index.bound[id(function), name], name, function, site)
            if name in parameters(function):
                return self._parameter(function, name)
        bound = self._index.bound.get((id(site.file), name))
        if bound is None:
            raise NotKnown
        return self._last(bound, name, None, site)

    def _last(
        self,
        bound: Sequence[Site],
        name: str,
        function: Function | None,
        site: Site,
    ) -> Any:
        """The value after the bindings that come before a place; behind a loop's, none is sure."""
        value: Any = Unknown()
        if function is not None and name in parameters(function):
            with suppress(NotKnown):
                value = self._parameter(function, name)
        is_here = (site.functions[-1] if site.functions else None) is function
        for binding in bound:
            if is_here and binding.node.lineno >= site.node.lineno:
                continue
            try:
                if self.is_reached(binding):
                    value = self._rebound(binding, value)
            except NotKnown:
                value = Unknown()
        if isinstance(value, Unknown):
            raise NotKnown
        return value

    def _rebound(self, binding: Site, value: Any) -> Any:
        """The value of a name after a statement that binds or changes it."""
        match binding.node:
            case ast.Assign(targets=[ast.Name()], value=new):
                return self.value(new, binding)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as new):
                return self.value(new, binding)
            case ast.Assign(targets=[ast.Subscript(slice=key)], value=new):
                changed = self.value_or_unknown(new, binding)
                return {**applied(dict, value), self.value(key, binding): changed}
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[new])):
                return [*applied(list, value), self.value(new, binding)]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update"), args=[new])):
                return {**applied(dict, value), **self.value(new, binding)}
        raise NotKnown

    def _parameter(self, function: Function, name: str) -> Any:
        """What the one call of a function gives a parameter, or its default."""
        if function.name in self.holders:
            return applied(lambda value: value, self.arguments.get(name, Unknown()))
        every = self._index.calls_of(function)
        calls = [call for call in every if self.reaches(call) is not False]
        if len(calls) != 1 or not isinstance(calls[0].node, ast.Call):
            raise NotKnown
        given = argument_of(calls[0].node, function, name)
        if given is not None:
            return self.value(given, calls[0])
        default = None if is_spread(calls[0].node) else default_of(function, name)
        if default is None:
            raise NotKnown
        return self.value(default, Site(default, calls[0].file))
