"""Operands of the failing expression, read from its syntax tree and the variables of its frame. Nothing is run."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import default_device
from devwidget.capture.object_fields import (
    class_name,
    copy_items,
    dict_of,
    find_class_attribute,
    is_a,
    is_exactly,
    is_scalar,
    items_of,
    module_name,
    parts_of,
)
from devwidget.capture.source_code.call_sites import call_text, line_of, site_of
from devwidget.capture.source_code.stack import locals_of
from devwidget.capture.source_code.statements import MOVES, statement_text
from devwidget.capture.tensors import DEVICE, is_module, is_tensor, own_tensors, read_attribute
from devwidget.capture.walk import children
from devwidget.records.device import HOST_CONSTRUCTORS, KINDS, PLACING_METHODS
from devwidget.records.syntax import arguments_in, name_of_called, parsed_operation, parsed_statement

UNKNOWN = object()
"""The value of an expression that only a run could show."""

_READABLE = frozenset({"device", "dtype", "shape"})
_CASTS = frozenset({"half", "float", "double", "bfloat16", "type"})
_OPERATORS = {
    "Mult": "mul", "FloorDiv": "floor_divide", "Mod": "remainder", "BitAnd": "bitwise_and", "BitOr": "bitwise_or",
    "BitXor": "bitwise_xor", "MatMult": "matmul", "NotEq": "ne", "LtE": "le", "GtE": "ge",
}  # fmt: skip
"""Torch's names of operators that the syntax tree names otherwise."""

_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load"}) | HOST_CONSTRUCTORS
"""Functions whose result is on the CPU, whatever the default device is."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call from its source and its frame; `func` may be a stand-in that has only the name."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Named:
    """Stands for a function that cannot be looked up."""

    def __init__(self, name: str) -> None:
        self.__name__ = name


class Scope:
    """The variables of one frame."""

    def __init__(self, frame: FrameType) -> None:
        self._locals, self._globals = locals_of(frame), frame.f_globals

    @classmethod
    def of_function(cls, function: types.FunctionType) -> Scope:
        """Return the variables that a function sees before it runs."""
        scope = cls.__new__(cls)
        scope._locals, scope._globals = {}, function.__globals__
        return scope

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression of names, attributes and items; UNKNOWN for all that would have to run."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._locals.get(name, dict.get(self._globals, name, vars(builtins).get(name, UNKNOWN)))
            case ast.Attribute(value=owner, attr=name):
                return _attribute(self.value(owner), name)
            case ast.Subscript(value=owner, slice=key):
                return _item(self.value(owner), self.value(key))
            case ast.FormattedValue(value=inner):
                return self.value(inner)
            case ast.JoinedStr(values=nodes):
                parts = [self.value(part) for part in nodes]
                if all(type(part) in (str, int) for part in parts):
                    return "".join(map(str, parts))
                return UNKNOWN
            case ast.Call(func=function, args=[owner, attribute, *_]) if self.value(function) is getattr:
                name = self.value(attribute)
                if type(name) is str:
                    return _attribute(self.value(owner), name)
                return UNKNOWN
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [value for item in items for value in self.given(item)]
        return UNKNOWN

    def truth(self, test: ast.expr) -> bool | None:
        """Return the result of a test of flags, numbers and None; None if only a run could show it."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                result = self.truth(inner)
                if result is None:
                    return None
                return not result
            case ast.Compare(left=left, ops=[comparison], comparators=[right]):
                compare = _COMPARISONS.get(type(comparison))
                operands = [self.value(left), self.value(right)]
            case _:
                compare = bool
                operands = [self.value(test)]
        if compare is None or not all(map(is_scalar, operands)):
            return None
        return bool(compare(*operands))

    def given(self, node: ast.expr) -> list[Any]:
        """Return the value, or the tensors that decide the device of the expression's result."""
        value = self.value(node)
        if value is not UNKNOWN:
            return [value]
        return list(self.leaves(node))

    def leaves(self, node: ast.expr) -> Iterator[torch.Tensor]:
        """Yield tensors whose device an expression's result shares."""
        for decider in self.deciders(node):
            if not isinstance(decider, ast.Call):
                yield decider

    def deciders(self, node: ast.expr) -> Iterator[torch.Tensor | ast.Call]:
        """Yield the same, and the torch calls in it, which may include a factory."""
        value = self.value(node)
        if is_tensor(value):
            yield value
            return
        parts: Sequence[ast.expr] = ()
        match node:
            case ast.Call() if argument_named(node, "device") is not None:
                if self._is_torch_call(node):
                    yield node
            case ast.Call(func=function) if is_module(layer := self.value(function)):
                yield from list(own_tensors(layer).values())[:1]
            case ast.Call(func=ast.Attribute(value=owner) as method) if self.value(method) is UNKNOWN and stays(node, self):
                parts = [owner]
            case ast.Call(args=arguments) if self._is_torch_call(node):
                yield node
                parts = arguments
            case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Compare(left=inner) | ast.UnaryOp(operand=inner):
                parts = [inner]
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
        for part in parts:
            yield from self.deciders(part)

    def _is_torch_call(self, node: ast.Call) -> bool:
        func = self.value(node.func)
        is_in_c = type(func) is types.BuiltinFunctionType and origin_of(func) != "builtins"
        return is_in_c or is_of_torch(func, name_of_called(node))


def stays(node: ast.Call, scope: Scope) -> bool:
    """Return False for a method that may move its tensor: `x.to(device)`, but not the cast `x.to(y.dtype)`."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name != "to":
        return name not in MOVES or name in _CASTS
    given = arguments_in(node)
    return all(type(scope.value(each)) is torch.dtype or ast.unparse(each).endswith("dtype") for each in given)


def device_requested(node: ast.AST | None, scope: Scope) -> torch.device | None:
    """Return the device to which a call such as `x.to(device)` or `x.cuda()` moves; None if its source does not show it."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method)) if method in PLACING_METHODS:
            asked = [scope.value(argument) for argument in arguments_in(node)] or [method]
            return _find_device("to", asked[0])
    return None


def device_asked_for(node: ast.expr, scope: Scope) -> torch.device | None:
    """Return the device that a move or a `device=` names; None if the source does not show it."""
    given = argument_named(node, "device")
    if given is None:
        return device_requested(node, scope)
    return _find_device("", scope.value(given))


def means(requested: torch.device, device: torch.device) -> bool:
    """Return whether `cuda` or `cuda:0` may mean `cuda:0`."""
    return requested.type == device.type and requested.index in (None, device.index)


def failing_call(frame: FrameType) -> Call | None:
    """Return the call that a frame was making; None if it was making none, or without source."""
    node, scope = running_node(frame), Scope(frame)
    operands = operands_of(node)
    match node:
        case ast.Call():
            return _call(node, scope)
        case ast.AugAssign(op=operator):
            function = _find_function(torch.Tensor, f"__i{_name_of(operator)}__")
        case ast.BinOp(op=operator) | ast.Compare(ops=[operator, *_]):
            function = _find_function(torch, _name_of(operator))
        case ast.Subscript() if frame.f_code.co_code[frame.f_lasti] == dis.opmap["STORE_SUBSCR"]:
            function = torch.Tensor.__setitem__
            operands += _stored_values(frame, node)
        case ast.Subscript():
            function = torch.Tensor.__getitem__
        case _:
            return None
    return Call(function, tuple(_argument(operand, scope) for operand in operands), {})


def _name_of(operator: ast.operator | ast.cmpop) -> str:
    name = type(operator).__name__
    return _OPERATORS.get(name, name.lower())


def running_node(frame: FrameType | None) -> ast.AST | None:
    """Return the syntax tree of the expression that a frame was running; None without source."""
    if frame is None:
        return None
    raw = site_of(frame)
    return parsed_operation(call_text(raw), line_of(raw))


def argument_named(call: ast.AST | None, name: str) -> ast.expr | None:
    """Return the argument of a call by name."""
    if isinstance(call, ast.Call):
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
    return None


def _find_function(owner: Any, name: str) -> Any:
    return getattr(owner, name, _Named(name))


def operands_of(node: ast.AST | None) -> list[ast.expr]:
    """Return the operands of an operator or a call, including the object of a method."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Attribute(value=owner)):
            return [owner, *arguments_in(node)]
        case ast.Call():
            return arguments_in(node)
    return []


def _stored_values(frame: FrameType, item: ast.Subscript) -> list[ast.expr]:
    """Return the operands of `x[key] = value`. The position of its instruction is the item alone."""
    raw = site_of(frame)
    match parsed_statement(statement_text(raw.code.co_filename, line_of(raw))):
        case ast.Assign(targets=targets, value=value) if ast.unparse(item) in map(ast.unparse, targets):
            return [value]
    return []


def _call(node: ast.Call, scope: Scope) -> Call:
    func, args, kwargs = scope.value(node.func), _arguments(node, scope), _keywords(node, scope)
    if is_module(func):  # a scripted one, or its frames would be below
        return Call(_Named(class_name(type(func))), args, kwargs | own_tensors(func))
    if func is not UNKNOWN:
        return Call(func, args, kwargs)
    match node.func:
        case ast.Attribute(value=owner, attr=name):
            return Call(_find_function(torch.Tensor, name), (_argument(owner, scope), *args), kwargs)
    return Call(_Named(ast.unparse(node.func)), args, kwargs)


def _arguments(node: ast.Call, scope: Scope) -> tuple[Any, ...]:
    found: list[Any] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            found += parts_of(scope.value(argument.value))
        else:
            found.append(_argument(argument, scope))
    return tuple(found)


def _keywords(node: ast.Call, scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keyword in node.keywords:
        value = _argument(keyword.value, scope)
        if keyword.arg is None:
            found |= {name: part for name, part in items_of(value) or () if type(name) is str}
        elif value is not None:  # what is not known is left out
            found[keyword.arg] = value
    return found


def _argument(node: ast.expr, scope: Scope) -> Any:
    """Return an argument: its value, the tensors that it is computed from, or None if unknown."""
    values = scope.given(node)
    if len(values) == 1:
        return values[0]
    return values or None


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute that can be read without running user code."""
    if owner is UNKNOWN:
        return UNKNOWN
    if is_tensor(owner) and name in _READABLE:
        return read_attribute(owner, name)
    if type(owner) is DEVICE and name in ("type", "index"):
        return getattr(owner, name)
    if is_tensor(owner) or is_a(owner, types.ModuleType):
        return dict_of(owner).get(name, UNKNOWN)
    found = dict(children(owner)).get(f".{name}", UNKNOWN)
    of_class = find_class_attribute(type(owner), name)
    if found is UNKNOWN and is_tensor(of_class):
        return of_class
    return found


def _item(owner: Any, key: Any) -> Any:
    if type(key) is int and is_exactly(owner, (list, tuple)) and -len(owner) <= key < len(owner):
        return owner[key]
    if type(owner) is dict and is_scalar(key):
        for each, value in copy_items(owner):
            if type(each) is type(key) and each == key:
                return value
    return UNKNOWN


def is_of_torch(func: Any, name: str) -> bool:
    """Return whether a function is torch's, or replaces it in torch under this name."""
    return origin_of(func).startswith("torch") or (func is not UNKNOWN and func is getattr(torch, name, UNKNOWN))


def origin_of(func: Any) -> str:
    """Return the module that a function names; "" for other callables, which may run code to return it."""
    if type(func) is types.FunctionType or type(func) is types.BuiltinFunctionType:
        if type(func.__module__) is str:
            return func.__module__
        return ""
    if is_a(func, type):
        return module_name(func)
    return ""


@dataclass(frozen=True, slots=True)
class FactoryCall:
    """One call of a factory.

    Attributes:
        text: its source.
        name: name of the function.
        device: device of its result.
    """

    text: str
    name: str
    device: torch.device


@functools.cache
def names_of_factories() -> frozenset[str]:
    """Return the names of all factories."""
    return frozenset(function.__name__ for function in torch_internals.device_constructors()) | _ARRIVALS


def factory_of(node: ast.expr, scope: Scope) -> FactoryCall | None:
    """Return the one factory whose result decides the device of an expression; None if something else may decide it."""
    factories = []
    for each in scope.deciders(node):
        factory = _read_call(each, scope) if isinstance(each, ast.Call) else None
        if factory is not None:
            factories.append(factory)
    if len(factories) == 1:
        return factories[0]
    return None


def _read_call(node: ast.Call, scope: Scope) -> FactoryCall | None:
    name = name_of_called(node)
    if name not in names_of_factories() or _is_number(node, name) or not is_of_torch(scope.value(node.func), name):
        return None
    asked = argument_named(node, "device")
    device = _find_device(name, scope.value(asked) if asked is not None else None)
    if device is not None:
        return FactoryCall(ast.unparse(node), name, device)
    return None


def _find_device(name: str, asked: Any) -> torch.device | None:
    """Return the device of the result; None if unknown."""
    if name in _ARRIVALS:
        return torch.device("cpu")
    if asked is None:
        return default_device()
    if type(asked) is str and asked.partition(":")[0] in ("cpu", *KINDS):
        return torch.device(asked)
    if type(asked) is DEVICE:
        return asked
    return None


def _is_number(node: ast.Call, name: str) -> bool:
    """Return whether a call is `torch.tensor(2.0)`, which may stay on the host."""
    first = node.args[0] if node.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    return name == "tensor" and isinstance(number, ast.Constant)
