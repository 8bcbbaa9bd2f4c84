"""Past calls: a function of the user that has returned, its source and what its parameters were given."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import find_class_attribute, is_a, is_scalar
from devwidget.capture.source_code.call_sites import is_library
from devwidget.capture.source_code.classes import list_written
from devwidget.capture.source_code.definitions import definition, statements_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, origin_of
from devwidget.capture.source_code.statements import site_at
from devwidget.records.site import Site
from devwidget.records.syntax import inner_statements, targets_of

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Argument:
    """What a call wrote for a parameter, and where that is read."""

    node: ast.expr
    scope: Scope
    site: Site


SOMETHING = object()
"""What a call gave that is gone, and was not None."""
Choices = Mapping[str, frozenset[str]]
"""Variables of loops over a few constants, and what they are made, as text."""
EMPTY: Choices = {}


class PastCall(Scope):
    """The variables of a call that is over, as far as its source and its arguments tell them.

    Args:
        function: what was called.
        node: its definition.
        given: what the call wrote for its parameters; None if the call is not known.
        owner: the object whose method it is, UNKNOWN for a plain function.
    """

    def __init__(self, function: FunctionType, node: Function, given: dict[str, Argument] | None, owner: Any) -> None:
        code = function.__code__
        hidden = dict.fromkeys((*code.co_varnames, *code.co_cellvars), UNKNOWN)
        anew = {part.id for each in statements_of(node) for part in targets_of(each) if isinstance(part, ast.Name)}
        known = {name: each.scope.value(each.node) for name, each in (given or {}).items() if name not in anew}
        own = {code.co_varnames[0]: owner} if owner is not UNKNOWN and code.co_argcount else {}
        self._locals, self._globals = hidden | closure_of(function) | known | own, function.__globals__
        self.describe(code, node, given)

    def describe(self, code: CodeType, node: Function, given: dict[str, Argument] | None) -> None:
        """Keep what the source and the caller tell."""
        self.node, self.file, self.name = node, code.co_filename, code.co_name
        self.arguments, self._called = given or {}, given is not None
        self._branches = branches(node)
        self._known: dict[tuple[str, int], Any] = {}
        self.choices = dict(_choices(node))

    def site(self, node: ast.stmt) -> Site:
        """Where one of its statements is."""
        return site_at(self.file, node.lineno, self.name)

    @property
    def last_line(self) -> int:
        """The last line of the function's source."""
        return self.node.end_lineno or self.node.lineno

    def ran_above(self, before: int) -> Iterator[ast.stmt]:
        """The statements above a line that can have run before it."""
        here = next((around for node, around in self._branches.items() if node.lineno == before), ())
        for each in statements_of(self.node):
            around = self._branches.get(each, ())
            if each.lineno < before and not exclude(around, here) and may_have_run(around, self.was):
                yield each

    def find_assignment(self, name: str, before: int) -> ast.stmt | None:
        """The last of them that gave a variable its value."""
        found = None
        for each in self.ran_above(before):
            plain = isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None
            if plain and any(ast.unparse(target) == name for target in targets_of(each)):
                found = each
        return found

    def was(self, node: ast.expr, line: int) -> Any:
        """The value of an argument, or of a field of the object, when the test at a line asked for it."""
        if not isinstance(node, ast.Name):
            return self.value(node) if isinstance(node, ast.Constant) or ast.unparse(node).startswith("self.") else UNKNOWN
        key = node.id, line
        if key not in self._known:
            self._known[key] = UNKNOWN  # while it is being asked for
            self._known[key] = self._variable_was(node, line)
        return self._known[key]

    def _variable_was(self, node: ast.Name, line: int) -> Any:
        stores = [each for each in statements_of(self.node) if node.id in _names_in(_given_in(each))]
        if not stores and (now := self.value(node)) is not UNKNOWN:
            return now
        first = self._find_argument(node.id) if self._called else UNKNOWN
        if (first is None or first is UNKNOWN) and any(each.lineno < line for each in stores):
            return UNKNOWN
        changed = [each for each in self.ran_above(line) if each in stores] if stores else []
        of_torch = all(_is_of_torch(getattr(each, "value", None), self) for each in changed)
        return first if not changed else SOMETHING if of_torch else UNKNOWN

    def is_still(self, name: str, line: int) -> bool:
        """Whether a living frame holds of a variable what the test at a line saw.

        The variable of a loop was another in the rounds before: what a branch gave then may be there still, unless both
        branches give it.
        """
        stores = [each for each in statements_of(self.node) if name in _names_in(_given_in(each))]
        looped = any(isinstance(each, ast.For | ast.AsyncFor) for each in stores)
        return all(each.lineno < line for each in stores) and (not looped or self._gives_both(line))

    def _gives_both(self, line: int) -> bool:
        """Whether the two branches of the `if` at a line give one variable a value."""
        ifs = [each for each in statements_of(self.node) if isinstance(each, ast.If) and each.lineno == line]
        sides = [[_stored_in(side) for side in (each.body, each.orelse)] for each in ifs]
        return bool(sides) and all(body & other for body, other in sides)

    def _find_argument(self, name: str) -> Any:
        """What a parameter was, when the call began."""
        if name in self.arguments:
            given = self.arguments[name]
            found = given.scope.value(given.node)
            return SOMETHING if found is UNKNOWN and _is_of_torch(given.node, given.scope) else found
        default = defaults(self.node).get(name)
        return default.value if isinstance(default, ast.Constant) else UNKNOWN

    def returns(self) -> Iterator[tuple[ast.expr, Site]]:
        """The expressions that it may have returned."""
        for each in statements_of(self.node):
            if isinstance(each, ast.Return) and each.value is not None and may_have_run(self._branches[each], self.was):
                yield each.value, self.site(each)


def _names_in(nodes: Iterable[ast.expr]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _given_in(statement: ast.stmt) -> list[ast.expr]:
    """What a statement itself gives a value: its targets, and the variable of a loop."""
    return [statement.target] if isinstance(statement, ast.For | ast.AsyncFor) else targets_of(statement)


def _stored_in(block: Iterable[ast.stmt]) -> set[str]:
    inside = (part for each in block for part in ast.walk(each) if isinstance(part, ast.stmt))
    return {name for each in inside for name in _names_in(targets_of(each))}


def _is_of_torch(node: ast.AST | None, scope: Scope) -> bool:
    """Whether an expression is the result of one of torch's functions, or of a method that tensors have."""
    if not isinstance(node, ast.Call):
        return False
    name, func = ast.unparse(node.func).rpartition(".")[2], scope.value(node.func)
    of_torch = origin_of(func).startswith("torch") or func is getattr(torch, name, node)
    return of_torch or (isinstance(node.func, ast.Attribute) and name != "backward" and hasattr(torch.Tensor, name))


def _choices(node: Function) -> Iterator[tuple[str, frozenset[str]]]:
    for each in statements_of(node):
        if isinstance(each, ast.For) and isinstance(each.target, ast.Name) and isinstance(each.iter, ast.Tuple | ast.List):
            values = [part.value for part in each.iter.elts if isinstance(part, ast.Constant)]
            if len(values) == len(each.iter.elts):
                yield each.target.id, frozenset(map(str, values))


def defaults(node: Function) -> dict[str, ast.expr]:
    """The parameters that have a default, and what the source says for it."""
    plain = [*node.args.posonlyargs, *node.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(zip(plain[::-1], node.args.defaults[::-1], strict=False))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return {each.arg: default for each, default in [*pairs, *named] if default is not None}


def past_call(call: ast.Call, scope: Scope, site: Site) -> PastCall | None:
    """The call of a user's function, or method, or module; None for others, and for what has no source."""
    function, owner = callee(call.func, scope)
    return entered(function, owner, given_by(call, function, owner, scope, site)) if function is not None else None


def entered(function: FunctionType, owner: Any, given: dict[str, Argument] | None) -> PastCall | None:
    """A call of a function; `given` is None if its arguments are not known."""
    node = definition_of(function.__code__)
    return PastCall(function, node, given, owner) if node is not None else None


def closure_of(function: FunctionType) -> dict[str, Any]:
    """The variables of the functions around it."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def callee(node: ast.expr, scope: Scope) -> tuple[FunctionType | None, Any]:
    """The function that an expression calls, and the object whose method it is (UNKNOWN for none)."""
    value: Any = scope.value(node)
    owner: Any = UNKNOWN
    if type(value) is MethodType:
        value, owner = value.__func__, value.__self__
    elif is_module(value):
        value, owner = find_class_attribute(type(value), "forward"), value
    elif value is UNKNOWN and isinstance(node, ast.Attribute):
        owner = scope.value(node.value)
        member = find_class_attribute(owner if is_a(owner, type) else type(owner), node.attr) if owner is not UNKNOWN else None
        owner = UNKNOWN if is_a(member, staticmethod) or is_a(owner, type) else owner
        value = member.__func__ if is_a(member, staticmethod) else member
    elif value is not UNKNOWN and type(value) is not FunctionType and not is_a(value, type):
        value, owner = find_class_attribute(type(value), "__call__"), value
    return (next(list_written(value), value), owner) if type(value) is FunctionType else (None, UNKNOWN)


def given_by(call: ast.Call, function: FunctionType, owner: Any, scope: Scope, site: Site) -> dict[str, Argument]:
    """Parameters and what the call writes for them, up to the first `*args`."""
    code = function.__code__
    names = code.co_varnames[owner is not UNKNOWN : code.co_argcount]
    plain = call.args[: next((at for at, arg in enumerate(call.args) if isinstance(arg, ast.Starred)), None)]
    pairs = [*zip(names, plain, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg is not None)]
    return {name: Argument(node, scope, site) for name, node in pairs}


def definition_of(code: CodeType) -> Function | None:
    """The syntax tree of a user's function, with the lines of its file."""
    if is_library(code.co_filename) or code.co_name.startswith("<"):
        return None
    node = definition(code.co_filename, code.co_firstlineno, code.co_name)
    return node if isinstance(node, Function) else None


Branch = tuple[ast.If, bool]
Value = Callable[[ast.expr, int], Any]
"""What an expression was when the test at a line asked for it; UNKNOWN if that cannot be told."""


def branches(function: ast.stmt) -> dict[ast.stmt, tuple[Branch, ...]]:
    """The statements of a function, each with the `if`s around it and whether it stands in their body."""
    found: dict[ast.stmt, tuple[Branch, ...]] = {}
    waiting: list[tuple[ast.stmt, tuple[Branch, ...]]] = [(function, ())]
    while waiting:
        node, around = waiting.pop()
        found[node] = around
        waiting += [(child, around + side) for child, side in _children(node)]
    return found


def _children(node: ast.stmt) -> Iterator[tuple[ast.stmt, tuple[Branch, ...]]]:
    if isinstance(node, ast.If):
        yield from ((child, ((node, True),)) for child in node.body)
        yield from ((child, ((node, False),)) for child in node.orelse)
    else:
        yield from ((child, ()) for child in inner_statements(node))


def exclude(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> bool:
    """Whether two statements stand in the two branches of one `if`."""
    return any(node is also and side != there for node, side in one for also, there in other)


def may_have_run(around: tuple[Branch, ...], value: Value) -> bool:
    """False for a statement in a branch that was not taken."""
    return all(decided(node.test, node.lineno, value) in (None, side) for node, side in around)


_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Sub: operator.sub}


def _compared(test: ast.Compare, line: int, value: Value) -> bool | None:
    """`step == steps - 1` of whole numbers, and texts that are the same or not."""
    left, right = (_plain(each, line, value) for each in (test.left, test.comparators[0]))
    alike = type(left) is type(right) and type(left) in (int, bool, str)
    return _COMPARED[type(test.ops[0])](left, right) if alike else None


def _plain(node: ast.expr, line: int, value: Value) -> Any:
    """What an expression of whole numbers was, and of a name or a constant."""
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _plain(node.left, line, value), _plain(node.right, line, value)
        return _COMPUTED[type(node.op)](left, right) if type(left) is type(right) is int else UNKNOWN
    return value(node, line)


def decided(test: ast.expr, line: int, value: Value) -> bool | None:
    """What a test gave; None if that cannot be told."""
    if isinstance(test, ast.BoolOp):
        parts, stops = [decided(part, line, value) for part in test.values], isinstance(test.op, ast.Or)
        return stops if stops in parts else None if None in parts else not stops
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, line, value)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
        left, right = value(test.left, line), value(test.comparators[0], line)
        known = left is not UNKNOWN and right is None
        return (left is None) == isinstance(test.ops[0], ast.Is) if known else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _COMPARED:
        return _compared(test, line, value)
    found = value(test, line)
    return bool(found) if found is not UNKNOWN and is_scalar(found) else None
