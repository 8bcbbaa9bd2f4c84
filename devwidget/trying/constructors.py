"""Constructors: what the new lines of `__init__` do, as a function of the module that it has made."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from devwidget.records.finding import Edit
from devwidget.records.syntax import is_self_attribute
from devwidget.trying.attribute_lines import assigned, is_alone, is_registration, self_name_of, without_unpacking
from devwidget.trying.edited_file import EditedFile, Function, NotTried, Place, located
from devwidget.trying.harmless import is_harmless

VALUE = "_value_"
"""How new lines call what the old ones have made; a number follows where these are several."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an edit of one assignment to attributes does.

    Attributes:
        attributes: that are assigned.
        makers: the constructor, or a method that it calls, once for each run of its cell.
        code: its code without the edit.
        apply: the new statements, of the module and of the values that the old one has given it.
        given: these values, where not the module had them but its class.
    """

    attributes: tuple[str, ...]
    makers: tuple[FunctionType, ...]
    code: CodeType
    apply: FunctionType
    given: tuple[torch.Tensor, ...] | None = None


def effect_of(edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType]) -> Effect:
    """The effect of an edit of a constructor, or of a method that it calls.

    Raises:
        NotTried: if it is not certain that the new lines would do the same where the constructor runs them.
    """
    place = located(edited.before, edit.first, edit.last)
    old, function = place.block[min(place.number, len(place.block) - 1)], place.function
    if function is None or place.block is not function.body or (old.lineno, old.end_lineno) != (edit.first, edit.last):
        raise NotTried("more or less than one statement of the constructor")
    self_name, makers = self_name_of(function), makers_of(function, live)
    values = assigned(old, self_name)
    after = function.body[function.body.index(old) + 1 :]
    if not all(is_alone(place, old, after, self_name, attribute, statements) for attribute in values):
        raise NotTried(f"`{next(iter(values))}` is used while the module is built")
    if any(isinstance(value, ast.Constant) and value.value is not None for value in values.values()):
        raise NotTried("what is there now came later")
    nothing = ast.dump(ast.Constant(None))
    if nothing in map(ast.dump, values.values()) and sum(ast.dump(n) == nothing for s in statements for n in ast.walk(s)) > 1:
        raise NotTried("which of them is the old value is not certain")
    return _effect(edited, place, makers, values, without_unpacking(old, statements))


def registration_of(
    edited: EditedFile,
    edit: Edit,
    statements: Sequence[ast.stmt],
    live: Sequence[FunctionType],
    held: Mapping[str, tuple[ast.expr, torch.Tensor]],
) -> Effect:
    """The effect of lines that are put into a constructor, and register what was an attribute of the class.

    Args:
        edited: as for `effect_of`.
        edit: as for `effect_of`.
        statements: as for `effect_of`.
        live: as for `effect_of`.
        held: attributes of the class that the same trial removes, with their source and their values.
    """
    place = located(edited.before, edit.first, edit.first)
    function = place.function
    if function is None or place.block is not function.body or not held or edit.last >= edit.first:
        raise NotTried("it does not register an attribute of the class")
    after, self_name = function.body[place.number :], self_name_of(function)
    if not all(is_alone(place, None, after, self_name, attribute, statements) for attribute in held):
        raise NotTried("an attribute of the class is used while the module is built")
    values = {attribute: value for attribute, (value, _) in held.items()}
    return _effect(edited, place, makers_of(function, live), values, statements, tuple(value for _, value in held.values()))


def _effect(
    edited: EditedFile,
    place: Place,
    makers: tuple[FunctionType, ...],
    values: Mapping[str, ast.expr],
    statements: Sequence[ast.stmt],
    given: tuple[torch.Tensor, ...] | None = None,
) -> Effect:
    if place.function is None or not makers or len({each.__code__ for each in makers}) > 1:
        raise NotTried("its constructor is not there any more")
    self_name, known = self_name_of(place.function), makers[0].__globals__
    names = {ast.dump(value): f"{VALUE}{number}" for number, value in enumerate(values.values())}
    new = [Substitute(names).visit(_copy(statement)) for statement in statements]
    local = {arg.arg for arg in ast.walk(place.function.args) if isinstance(arg, ast.arg)} | _stored(place.function)
    outer = {name: each for name, each in known.items() if name not in local}
    if len(names) < len(values) or not new or not all(is_registration(each, self_name, values) for each in new):
        raise NotTried("it does more than register")
    if not all(is_harmless(each, outer, (self_name, *names.values())) for each in new):
        raise NotTried("it reads what only the constructor knows")
    apply = _compiled(new, (self_name, *names.values()), edited.file, known)
    return Effect(tuple(values), makers, makers[0].__code__, apply, given)


def runs_in_constructor(place: Place) -> bool:
    """Whether a method is called by the constructor of its class."""
    if place.function is None or place.owner is None or place.function not in place.owner.body:
        return False
    inits = [each for each in place.owner.body if isinstance(each, Function) and each.name == "__init__"]
    calls = [node.func for each in inits for node in ast.walk(each) if isinstance(node, ast.Call)]
    return any(is_self_attribute(func, place.function.name, self_name_of(init)) for init in inits for func in calls)


def makers_of(function: Function, live: Sequence[FunctionType]) -> tuple[FunctionType, ...]:
    """The functions that some source has become."""
    line = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    return tuple(each for each in live if each.__code__.co_firstlineno == line and each.__name__ == function.name)


class Substitute(ast.NodeTransformer):
    """The old value stands wherever the new lines would compute it once more."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> Any:
        """Replace what is spelled as an old value was."""
        name = self._names.get(ast.dump(node)) if isinstance(node, ast.expr) else None
        return ast.copy_location(ast.Name(name, ast.Load()), node) if name else super().visit(node)


def _copy(statement: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(statement)).body[0]


def _stored(function: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _compiled(statements: list[ast.stmt], names: Sequence[str], file: str, known: dict[str, Any]) -> FunctionType:
    tree = ast.parse(f"def apply({', '.join(names)}): pass")
    tree.body[0].body = statements  # type: ignore[attr-defined]  # a function has one
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True), known, made)
    found: FunctionType = made["apply"]
    return found
