"""Constructors: what the new lines of `__init__` do, as a function of the module that it has made."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from devwidget.records.finding import Edit
from devwidget.trying.edited_file import EditedFile, Function, NotTried, located
from devwidget.trying.harmless import is_harmless

VALUE = "_value_"
"""How new lines call what the old ones have made."""
_GROWS = {"append", "extend", "insert", "update"}


@dataclass(frozen=True, slots=True)
class Effect:
    """What an edit of one assignment to an attribute does.

    Attributes:
        attribute: that is assigned.
        makers: the constructor, by which the modules are recognised that it has made; once for each run of its cell.
        code: its code without the edit.
        apply: the new statements, of the module and of the value that the old one has given it.
    """

    attribute: str
    makers: tuple[FunctionType, ...]
    code: CodeType
    apply: FunctionType


def effect_of(edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType]) -> Effect:
    """The effect of an edit of a constructor.

    Raises:
        NotTried: if it is not certain that the new lines would do the same where the constructor runs them.
    """
    place = located(edited.before, edit.first, edit.last)
    old, function = place.block[min(place.number, len(place.block) - 1)], place.function
    if function is None or place.block is not function.body or (old.lineno, old.end_lineno) != (edit.first, edit.last):
        raise NotTried("more or less than one statement of the constructor")
    self_name = function.args.args[0].arg if function.args.args else ""
    attribute, value = _assigned(old, self_name)
    makers = [each for each in live if each.__code__.co_firstlineno == _line(function) and each.__name__ == function.name]
    if (
        not makers
        or len({each.__code__ for each in makers}) > 1
        or not _is_alone(function, old, self_name, attribute, statements)
    ):
        raise NotTried(f"`{attribute}` is used while the module is built")
    if isinstance(value, ast.Constant) and sum(ast.dump(n) == ast.dump(value) for s in statements for n in ast.walk(s)) > 1:
        raise NotTried("which of them is the old value is not certain")
    new = [Substitute(value).visit(_copy(statement)) for statement in statements]
    known = makers[0].__globals__
    local = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)} | _stored(function)
    outer = {name: each for name, each in known.items() if name not in local}
    if not new or not all(_is_registration(each, self_name, attribute) for each in new):
        raise NotTried("it does more than register")
    if not all(is_harmless(each, outer, (self_name, VALUE)) for each in new):
        raise NotTried("it reads what only the constructor knows")
    return Effect(attribute, tuple(makers), makers[0].__code__, _compiled(new, self_name, edited.file, known))


def _assigned(statement: ast.stmt, self_name: str) -> tuple[str, ast.expr]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    target, value = targets[0], getattr(statement, "value", None)
    if (
        len(targets) == 1
        and value is not None
        and isinstance(statement, ast.Assign | ast.AnnAssign)
        and _is_own(target, self_name)
    ):
        return target.attr, value  # type: ignore[union-attr]  # `_is_own` has asked
    raise NotTried("no assignment to an attribute")


def _is_own(node: ast.AST | None, self_name: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name


def _is_alone(function: ast.AST, old: ast.stmt, self_name: str, attribute: str, new: Sequence[ast.stmt]) -> bool:
    """The constructor sets the attribute once, after that of its base, and then only fills or reads what it has set."""
    body: list[ast.stmt] = getattr(function, "body", [])
    before, after = body[: body.index(old)], body[body.index(old) + 1 :]
    is_begun = any("__init__" in ast.unparse(each) for each in before)
    uses = [n for each in after for n in ast.walk(each) if _is_own(n, self_name) and getattr(n, "attr", "") == attribute]
    parents = {id(child): n for each in after for n in ast.walk(each) for child in ast.iter_child_nodes(n)}
    words = " ".join(map(ast.unparse, new))
    if "register_buffer" in words:
        return is_begun and all(isinstance(getattr(use, "ctx", None), ast.Load) for use in uses)
    return is_begun and all(getattr(parents.get(id(use)), "attr", "") in _GROWS for use in uses)


def _is_registration(statement: ast.stmt, self_name: str, attribute: str) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        return _is_own(func, self_name) and getattr(func, "attr", "") in ("register_buffer", "register_parameter")
    try:
        return _assigned(statement, self_name)[0] == attribute
    except NotTried:
        return False


class Substitute(ast.NodeTransformer):
    """The old value stands wherever the new lines would compute it once more."""

    def __init__(self, value: ast.expr) -> None:
        self._value = ast.dump(value)

    def visit(self, node: ast.AST) -> Any:
        """Replace what is spelled as the old value was."""
        if isinstance(node, ast.expr) and ast.dump(node) == self._value:
            return ast.copy_location(ast.Name(VALUE, ast.Load()), node)
        return super().visit(node)


def _copy(statement: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(statement)).body[0]


def _stored(function: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _compiled(statements: list[ast.stmt], self_name: str, file: str, known: dict[str, Any]) -> FunctionType:
    tree = ast.parse(f"def apply({self_name}, {VALUE}): pass")
    tree.body[0].body = statements  # type: ignore[attr-defined]  # a function has one
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True), known, made)
    found: FunctionType = made["apply"]
    return found


def _line(function: Function) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])
