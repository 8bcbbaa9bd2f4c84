"""Changes: the statements of a function that has returned which gave a variable, or a part of what it held, its value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from devwidget.capture.source_code.past.past_calls import EMPTY, Choices, PastCall, past_call
from devwidget.capture.source_code.source_index import MOVES
from devwidget.capture.source_code.value_paths import Keys, place_of
from devwidget.records.site import Site
from devwidget.records.syntax import targets_of

_REGISTRATIONS = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})


@dataclass(frozen=True, slots=True)
class Change:
    """One statement.

    Attributes:
        scope: the call that ran it.
        site: where it is.
        value: what it assigned, or the call that moved what was there; None if it may have changed the part, or another.
        keys: items and attributes of the value that are asked for.
        is_move: of the second kind.
    """

    scope: PastCall
    site: Site
    value: ast.expr | None
    keys: Keys
    is_move: bool = False


def change_of(past: PastCall, name: str, keys: Keys, before: int, *, moves: bool, deep: int = 2) -> Change | None:
    """The last statement above a line that can have run and changed a part of a variable.

    Args:
        past: the call.
        name: of the variable.
        keys: the part: items and attributes, outermost first.
        before: the line.
        moves: whether `model.to(...)`, alone, changes it.
        deep: how many functions inside one another are looked into that were given the variable.
    """
    found = None
    for each in past.ran_above(before):
        for part, value, rest in _assigned_parts(each, name, past.choices):
            same = _is_same_part(part, keys)
            if same is not False:
                found = Change(past, past.site(each), value if same else None, (*rest, *keys[len(part) :]))
        if not keys or not isinstance(each, ast.Expr):
            continue
        moved = _moved_part(each, name) if moves else None
        if moved is not None and len(moved) < len(keys) and _is_same_part(moved, keys):
            found = Change(past, past.site(each), each.value, keys, is_move=True)
        found = _inside(past, each.value, name, keys, past.site(each), moves=moves, deep=deep) or found
    return found


def _inside(past: PastCall, call: ast.expr, name: str, keys: Keys, site: Site, *, moves: bool, deep: int) -> Change | None:
    """The same in a function of the user's that was given the variable: `resume(optimizer, saved)`."""
    inner = past_call(call, past, site) if isinstance(call, ast.Call) and deep else None
    for parameter, given in inner.arguments.items() if inner is not None else ():
        root, part = path_of_node(given.node)
        if inner is not None and root == name and len(part) < len(keys) and _is_same_part(part, keys):
            return change_of(inner, parameter, keys[len(part) :], inner.last_line + 1, moves=moves, deep=deep - 1)
    return None


def dropped_move(past: PastCall, name: str, after: int, before: int) -> Site | None:
    """A statement between two lines that moves a variable, or names its move, and keeps nothing: `x.to(device)`, `x.cuda`."""
    for each in past.ran_above(before):
        value = each.value if isinstance(each, ast.Expr) else None
        method = value.func if isinstance(value, ast.Call) else value
        moves = isinstance(method, ast.Attribute) and method.attr in MOVES
        if moves and each.lineno > after and path_of_node(method.value) == (name, ()):  # type: ignore[union-attr]
            return past.site(each)
    return None


def _assigned_parts(statement: ast.stmt, name: str, choices: Choices) -> Iterator[tuple[Keys, ast.expr, Keys]]:
    """Parts of a variable that a statement assigns, the value, and which part of that."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and value is not None:
        for target in targets_of(statement):
            root, keys = path_of_node(target, choices)
            if root == name:
                yield keys, value, place_of(statement, ast.unparse(target))
    elif isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        root, keys = path_of_node(value.func.value)
        if (
            root == name
            and value.func.attr in _REGISTRATIONS
            and len(value.args) > 1
            and isinstance(value.args[0], ast.Constant)
        ):
            yield (*keys, value.args[0].value), value.args[1], ()


def _moved_part(statement: ast.stmt, name: str) -> Keys | None:
    """The part of a variable that `model.head.to(...)` moves, if nobody keeps the result: a module."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVES:
        root, keys = path_of_node(value.func.value)
        return keys if root == name else None
    return None


def path_of_node(node: ast.expr, choices: Choices = EMPTY) -> tuple[str, Keys]:
    """`model` and `("heads", "colour")` of `model.heads['colour']`.

    In the place of an item that is a variable stands what a loop makes of it, one after the other, or ... for anything.
    """
    keys: list[object] = []
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
        elif isinstance(node.slice, ast.Constant):
            keys.append(node.slice.value)
        else:
            keys.append(choices.get(getattr(node.slice, "id", ""), ...))
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), tuple(reversed(keys))


def _is_same_part(part: Keys, keys: Keys) -> bool | None:
    """Whether the one is the other, or holds it; None if it may be. `layers[0]` is the module `layers.0`."""
    if len(part) > len(keys):
        return False
    alike = [_same_key(a, b) for a, b in zip(part, keys, strict=False)]
    return False if False in alike else None if None in alike else True


def _same_key(one: object, other: object) -> bool | None:
    if isinstance(one, frozenset):
        return str(other) in one
    return None if one is not other and ... in (one, other) else str(one) == str(other)
