"""Makers: the calls that a value came from, followed through assignments and functions that have returned."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import find_class_attribute, is_a, mro_of
from devwidget.capture.source_code.classes import list_written
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, origin_of
from devwidget.capture.source_code.past.decisions import ARRIVALS, THEMSELVES, Aspect, Maker, decided_by_move, made_by_factory
from devwidget.capture.source_code.past.past_calls import Argument, PastCall, entered, given_by, past_call
from devwidget.capture.source_code.past.variable_changes import Change, change_of, dropped_move, path_of_node
from devwidget.capture.source_code.source_index import MOVES
from devwidget.capture.source_code.value_paths import Keys, fields_of_class, parts_of_value, selected
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.device import HOST_CONSTRUCTORS
from devwidget.records.site import Site

MOST_NODES = 400
"""Expressions that are looked at for one value."""
_LISTS = ("Sequential", "ModuleList", "ParameterList")


def makers(
    node: ast.expr, scope: Scope, site: Site, keys: Keys = (), aspect: Aspect = "device", *, moves: bool = True
) -> list[Maker | torch.Tensor]:
    """Where the value of an expression may come from: calls that made it, and tensors that still exist.

    Args:
        node: the expression.
        scope: its variables.
        site: the statement that it stands in.
        keys: items and attributes of the value that are asked for, outermost first.
        aspect: which decision is asked for.
        moves: whether a move of what holds the value moves the value too.
    """
    return list(_Search(aspect, moves).follow(node, scope, site, keys))


class _Search:
    def __init__(self, aspect: Aspect, moves: bool) -> None:
        self._aspect, self._moves, self._left = aspect, moves, MOST_NODES
        self._items: dict[tuple[int, str], ast.expr] = {}
        """What the variables of the comprehensions around are items of, by scope."""

    def follow(self, node: ast.AST | None, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        self._left -= 1
        if self._left < 0 or not isinstance(node, ast.expr):
            return
        if isinstance(node, ast.Name):
            node = self._items.get((id(scope), node.id), node)
        value = UNKNOWN if self._is_of_comprehension(node, scope) else scope.value(node)
        if value is not UNKNOWN and not isinstance(node, ast.Tuple | ast.List):
            yield from tensors_in(selected(value, keys), depth=2) if self._aspect != "object" else ()
        elif isinstance(node, ast.Call):
            yield from self._call(node, scope, site, keys)
        elif isinstance(node, ast.Name):
            yield from self._variable(node.id, scope, site, keys)
        elif isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            yield from self.follow(node.value, scope, site, keys if key is None else (key, *keys))
        elif isinstance(node, ast.Attribute):
            yield from self._field_of(node, scope, site, keys)
        elif isinstance(node, Comprehension):
            yield from self._comprehension(node, scope, site, keys)
        else:
            for part, rest in parts_of_value(node, keys):
                yield from self.follow(part, scope, site, rest)

    def _is_of_comprehension(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression reads a variable of a comprehension around it, whatever else bears its name."""
        names = (part.id for part in ast.walk(node) if isinstance(part, ast.Name)) if self._items else ()
        return any((id(scope), name) in self._items for name in names)

    def _comprehension(self, node: Comprehension, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What it computes for each element, or for the one that is asked for."""
        outer, key = self._items, keys[0] if keys else None
        found = items_of_comprehension(node, key)
        self._items = outer | {(id(scope), name): item for name, item in found.items()}
        yield from self.follow(node.value if isinstance(node, ast.DictComp) else node.elt, scope, site, keys[1:])
        self._items = outer

    def _field_of(self, node: ast.Attribute, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """A part of what a value is, or what a property of a class returns."""
        owner = UNKNOWN if self._is_of_comprehension(node.value, scope) else scope.value(node.value)
        member = find_class_attribute(type(owner), node.attr) if owner is not UNKNOWN else None
        getter = next(list_written(member), None) if type(member) is property else None
        past = entered(getter, owner, {}) if getter is not None else None
        if past is None:
            yield from self.follow(node.value, scope, site, (node.attr, *keys))
            return
        for returned, where in past.returns():
            yield from self.follow(returned, past, where, keys)

    def _variable(self, name: str, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """A variable of a function that has returned: its last change above, else what the caller gave."""
        if not isinstance(scope, PastCall):
            return
        change = change_of(scope, name, keys, site.line, moves=self._aspect != "object" and self._moves)
        if change is None and name in scope.arguments:
            given = scope.arguments[name]
            yield from self.follow(given.node, given.scope, given.site, keys)
        elif change is not None:
            dropped = dropped_move(scope, name, change.site.line, site.line) if not keys else None
            for made in self._follow_change(change, keys):
                yield replace(made, dropped=made.dropped or dropped) if isinstance(made, Maker) else made

    def _follow_change(self, change: Change, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What a statement did to a part of a variable."""
        if change.is_move and change.value is not None:
            yield from self._follow_move(change.value, change.scope, change.site, change.keys)
            return
        found = list(self.follow(change.value, change.scope, change.site, change.keys))
        if not found and self._aspect == "object" and keys and change.value is not None:
            found = [Maker(change.site, ast.unparse(change.value), "", change.scope)]
        yield from found

    def _follow_move(self, node: ast.expr, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """`model.to('cuda:0')`: what it did, or what had been done before."""
        made = decided_by_move(node, scope, site, self._aspect) if isinstance(node, ast.Call) else None
        if made is not None:
            yield made
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, _ = path_of_node(node.func.value)
            yield from self._variable(name, scope, site, keys)

    def _call(self, node: ast.Call, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        func = scope.value(node.func)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if is_a(func, type) and (self._aspect == "object" or is_module_class(func) or not origin_of(func).startswith("torch")):
            yield from self._object(node, func, scope, site, keys)
        elif origin_of(func).startswith("torch") or func is getattr(torch, name, node):
            yield from self._of_torch(node, name, scope, site)
        elif (past := past_call(node, scope, site) or self._of_unknown(node, scope, site)) is not None:
            for returned, where in past.returns():
                yield from self.follow(returned, past, where, keys)
        elif name == "get" and isinstance(node.func, ast.Attribute) and node.args and isinstance(node.args[0], ast.Constant):
            yield from self.follow(node.func.value, scope, site, (node.args[0].value, *keys))
        elif isinstance(node.func, ast.Attribute):
            yield from self._method(node, node.func, scope, site, keys)

    def _method(
        self, node: ast.Call, func: ast.Attribute, scope: Scope, site: Site, keys: Keys
    ) -> Iterator[Maker | torch.Tensor]:
        """A method of a tensor or a module that is gone: a move, or one whose result is where its object was."""
        made = decided_by_move(node, scope, site, self._aspect) if func.attr in MOVES and (self._moves or not keys) else None
        beside = (
            self._follow_neighbour(node.args[0], scope, site) if made is not None and func.attr == "to" and node.args else []
        )
        if beside:
            yield from beside
        elif made is not None:
            yield made
        else:
            yield from self.follow(func.value, scope, site, keys if func.attr in THEMSELVES else ())

    def _of_unknown(self, node: ast.Call, scope: Scope, site: Site) -> PastCall | None:
        """A method of an object that a user's class has made: `Net().spread()`, `trainer.batch()`."""
        owner = _made_by_class(node.func.value, scope, site) if isinstance(node.func, ast.Attribute) else None
        kind = owner.scope.value(owner.node.func) if owner is not None and isinstance(owner.node, ast.Call) else UNKNOWN
        method = (
            find_class_attribute(kind, node.func.attr) if is_a(kind, type) and isinstance(node.func, ast.Attribute) else None
        )
        if type(method) is not FunctionType or owner is None or not method.__code__.co_argcount:
            return None
        given = given_by(node, method, None, scope, site)
        return entered(method, UNKNOWN, {method.__code__.co_varnames[0]: owner, **given})

    def _of_torch(self, node: ast.Call, name: str, scope: Scope, site: Site) -> Iterator[Maker | torch.Tensor]:
        """A factory, or an operation: its result is where its arguments are."""
        if self._aspect == "object":
            return
        told = next((keyword.value for keyword in node.keywords if keyword.arg == self._aspect), None)
        if beside := self._follow_neighbour(told, scope, site):
            yield from beside
        elif name in HOST_CONSTRUCTORS and ast.unparse(node.func).rpartition(".")[0].endswith("cuda"):
            return  # its namesake, which makes it there
        elif name in names_of_factories():
            made = made_by_factory(node, name, scope, site, self._aspect)
            if made is not None:
                yield made
        elif told is None:
            for argument in node.args:
                yield from self.follow(argument, scope, site, ())

    def _follow_neighbour(self, told: ast.expr | None, scope: Scope, site: Site) -> list[Maker | torch.Tensor]:
        """What `device=x.device` put a result beside, if that is on the CPU: between GPUs either may be right."""
        if isinstance(told, ast.Name) and isinstance(scope, PastCall):
            change, given = change_of(scope, told.id, (), site.line, moves=False), scope.arguments.get(told.id)
            if change is None and given is not None:
                return self._follow_neighbour(given.node, given.scope, given.site)
            told = change.value if change is not None else None
        if self._aspect != "device" or not isinstance(told, ast.Attribute) or told.attr != "device":
            return []
        value = scope.value(told.value)
        return [] if is_tensor(value) and value.device.type != "cpu" else list(self.follow(told.value, scope, site, ()))

    def _object(self, node: ast.Call, kind: type, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What a constructor makes, or a field of that: a keyword of `dict(...)`, a data class or a torch module, an item of a
        list, else what `__init__` assigns to it."""
        if kind is functools.partial and len(keys) > 1:
            yield from self._bound(node, scope, site, keys)
            return
        if not keys:
            yield from [Maker(site, ast.unparse(node), kind.__name__, scope)] if self._aspect == "object" else ()
            yield from self.follow(node.args[0], scope, site, ()) if kind in (list, tuple) and node.args else ()
            return
        wanted = _given_as_field(node, kind, keys[0])
        if wanted is not None:
            yield from self.follow(wanted, scope, site, keys[1:])
        elif kind in (list, tuple) or kind.__name__ in (*_LISTS, "ModuleDict"):
            yield from self._item(node, scope, site, keys)
        elif is_module_class(kind) and origin_of(kind).startswith("torch"):
            made = made_by_factory(node, kind.__name__, scope, site, self._aspect)
            yield from [made] if made is not None and self._aspect != "object" else ()
        elif type(keys[0]) is str:
            yield from self._field(node, kind, scope, site, keys)

    def _bound(self, node: ast.Call, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What `functools.partial` was given, for `criterion.keywords['weight']`."""
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        given = named if keys[0] == "keywords" else dict(enumerate(node.args[1:]))
        if keys[1] in given:
            yield from self.follow(given[keys[1]], scope, site, keys[2:])

    def _item(self, node: ast.Call, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """`nn.Sequential(a, b)[1]`, `nn.ModuleList([a, b])[1]`, `nn.ModuleDict({'a': a})['a']`."""
        number = int(keys[0]) if str(keys[0]).isdigit() else None
        if len(node.args) == 1:
            yield from self.follow(node.args[0], scope, site, (keys[0] if number is None else number, *keys[1:]))
        elif number is not None and number < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args):
            yield from self.follow(node.args[number], scope, site, keys[1:])

    def _field(self, node: ast.Call, kind: type, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What `__init__` of a user's class puts into `self.codes`."""
        init = find_class_attribute(kind, "__init__")
        given = given_by(node, init, None, scope, site) if type(init) is FunctionType else {}
        past = entered(init, UNKNOWN, given) if type(init) is FunctionType else None
        if past is None or type(init) is not FunctionType:
            return
        me = init.__code__.co_varnames[0]
        change = change_of(past, me, keys, past.last_line + 1, moves=self._aspect != "object" and self._moves)
        if change is not None:
            yield from self._follow_change(change, keys)


def _made_by_class(node: ast.expr, scope: Scope, site: Site) -> Argument | None:
    """The call that an expression is, or that a variable of a function that has returned was assigned."""
    if isinstance(node, ast.Name) and isinstance(scope, PastCall):
        change = change_of(scope, node.id, (), site.line, moves=False)
        return Argument(change.value, change.scope, change.site) if change is not None and change.value is not None else None
    return Argument(node, scope, site) if isinstance(node, ast.Call) else None


def _given_as_field(node: ast.Call, kind: type, key: Any) -> ast.expr | None:
    """What a call wrote for a field: of a dict, a data class, or a module of torch, which keeps what it is given."""
    wanted = next((each.value for each in node.keywords if each.arg == key), None)
    if wanted is not None:
        return wanted if kind is dict or fields_of_class(kind) or origin_of(kind).startswith("torch") else None
    order = list(fields_of_class(kind)) or (["module"] if kind.__name__ == "DataParallel" else [])
    return node.args[order.index(key)] if key in order and order.index(key) < len(node.args) else None


def is_module_class(kind: type) -> bool:
    """Whether instances are modules."""
    return torch.nn.Module in mro_of(kind)


@functools.cache
def names_of_factories() -> frozenset[str]:
    """Functions of torch that decide a device themselves."""
    return frozenset(func.__name__ for func in torch_internals.device_constructors()) | ARRIVALS


Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def items_of_comprehension(node: Comprehension, index: object) -> dict[str, ast.expr]:
    """Variables of a comprehension, each as an item of what it runs over.

    Args:
        node: the comprehension.
        index: which element of the result is asked for; another than a number is any.
    """
    (first, *more) = node.generators
    at = index if type(index) is int and not more and not first.ifs and not isinstance(node, ast.DictComp) else None
    return {name: item for each in node.generators for name, item in items_of_loop(each.target, each.iter, at)}


def items_of_loop(target: ast.expr, over: ast.expr, index: int | None = None) -> Iterator[tuple[str, ast.expr]]:
    """`a` is `x[index]` and `b` is `y[index]` of `for a, b in zip(x, y)`."""
    if isinstance(target, ast.Name):
        yield target.id, _item(over, index)
    for at, part in enumerate(target.elts if isinstance(target, ast.Tuple | ast.List) else ()):
        called = ast.unparse(over.func).rpartition(".")[2] if isinstance(over, ast.Call) else ""
        given = over.args if isinstance(over, ast.Call) else []
        if called == "zip" and at < len(given):
            yield from items_of_loop(part, given[at], index)
        elif called == "enumerate" and given:
            yield from items_of_loop(part, given[0], index) if at else ()
        elif called == "items" and isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
            yield from items_of_loop(part, over.func.value) if at else ()
        else:
            yield from items_of_loop(part, _item(over, index), at)


def _item(over: ast.expr, index: int | None) -> ast.expr:
    key = ast.Name("_", ast.Load()) if index is None else ast.Constant(index)
    return ast.fix_missing_locations(ast.copy_location(ast.Subscript(over, key, ast.Load()), over))
