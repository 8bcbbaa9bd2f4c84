"""Class attributes: one that an edit takes out of the body of a class, gone for one step."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType

import torch

from devwidget.capture.other_threads import running_thread
from devwidget.capture.tensors import is_tensor
from devwidget.capture.undo import Undo
from devwidget.records.finding import Edit
from devwidget.trying.constructors import makers_of
from devwidget.trying.edited_file import EditedFile, Function, NotTried, Place, located
from devwidget.trying.subjects import Subjects


@dataclass(frozen=True, slots=True)
class Removal:
    """An attribute of a class.

    Attributes:
        kind: the class.
        name: of the attribute.
        source: what the body of the class gives it.
        value: that it has.
    """

    kind: type
    name: str
    source: ast.expr
    value: torch.Tensor

    def apply(self, undo: Undo) -> None:
        """Take it out of its class."""
        undo.add_step(type.__setattr__, self.kind, self.name, self.value)
        type.__delattr__(self.kind, self.name)


def removal_of(
    edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType], subjects: Subjects
) -> Removal:
    """What an edit of `name = tensor` in the body of a class takes away.

    Raises:
        NotTried: if it is no such edit, no module of the step is of that class, or another thread runs, which sees it too.
    """
    if running_thread():
        raise NotTried("another thread would miss it")
    place = located(edited.before, edit.first, edit.last)
    old = place.block[min(place.number, len(place.block) - 1)]
    target = old.targets[0] if isinstance(old, ast.Assign) and len(old.targets) == 1 else None
    whole = (old.lineno, old.end_lineno) == (edit.first, edit.last)
    if not whole or not isinstance(old, ast.Assign) or not isinstance(target, ast.Name):
        raise NotTried("no assignment in the body of a class")
    if not all(isinstance(each, ast.Pass) or (isinstance(each, ast.AnnAssign) and each.value is None) for each in statements):
        raise NotTried("it does more than take the attribute away")
    kinds = _kinds(place, live, subjects)
    value = vars(kinds[0]).get(target.id) if len(kinds) == 1 else None
    if not is_tensor(value):
        raise NotTried(f"`{target.id}` is no tensor of one class")
    return Removal(kinds[0], target.id, old.value, value)


def _kinds(place: Place, live: Sequence[FunctionType], subjects: Subjects) -> list[type]:
    """The classes of the step's modules that some source has become."""
    inits = [each for each in getattr(place.owner, "body", []) if isinstance(each, Function) and each.name == "__init__"]
    makers = [maker for init in inits for maker in makers_of(init, live)]
    every = dict.fromkeys(kind for module in subjects.modules() for kind in type(module).__mro__)
    return [kind for kind in every if any(vars(kind).get("__init__") is maker for maker in makers)]
