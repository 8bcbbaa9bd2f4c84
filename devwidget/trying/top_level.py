"""Top level: an assignment of a file or cell that has run already, run again in its namespace for one step.

That is done only if nothing but the step has used the name since.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.object_fields import is_scalar
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import is_tensor, replace_tensors
from devwidget.records.finding import Edit
from devwidget.records.site import cell_label, cells
from devwidget.trying.constructors import VALUE, Substitute
from devwidget.trying.edited_code import EditedFile, NotFound, NotTried, locate_edit
from devwidget.trying.harmless_expressions import is_harmless
from devwidget.trying.trial_subjects import Subjects

Line = tuple[str, int]
_ASKED = {"shape", "dtype", "ndim", "size", "numel", "parameters", "named_parameters", "train", "eval", "state_dict", "modules"}
"""What may be asked of a tensor or a module, wherever it is."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The new text of `name = value`.

    Attributes:
        names: the namespace of the file or cell.
        name: that is assigned.
        value: the new expression, compiled; it may read the old value.
        reads_old: whether it does.
    """

    names: dict[str, Any]
    name: str
    value: CodeType
    reads_old: bool


def find_assignment(
    edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType], ran: Collection[Line]
) -> Assignment:
    """The assignment that an edit changes.

    Raises:
        NotTried: if it does more than make a value, or what has run since has used the value for anything but the step.
    """
    place = locate_edit(edited.before, edit.first, edit.last)
    old = place.block[min(place.number, len(place.block) - 1)]
    if place.block is not edited.before.body or (old.lineno, old.end_lineno) != (edit.first, edit.last) or len(statements) != 1:
        raise NotTried("more or less than one statement of the file")
    name, before = _read_assignment(old)
    new_name, after = _read_assignment(statements[0])
    names = _find_namespace(edited.file, live)
    uses = list(find_uses(name, _list_sources(edited)))
    if name != new_name or name not in names or sum(use.is_set for use in uses) != 1:
        raise NotTried(f"`{name}` is assigned more than once")
    if any(other is not names and other.get(name) is names[name] for other in _list_namespaces()):
        raise NotTried(f"another file has imported `{name}`")
    if not all(use.is_set or old in use.around or _is_of_the_step(use, names, ran) for use in uses):
        raise NotTried(f"`{name}` has been used before the step")
    changed: Any = Substitute({ast.dump(before): VALUE}).visit(ast.parse(ast.unparse(after), mode="eval").body)
    if not is_harmless(changed, names, (VALUE,)):
        raise NotTried("it does more than make a value")
    tree = ast.fix_missing_locations(ast.Expression(changed))
    return Assignment(names, name, compile(tree, edited.file, "eval", dont_inherit=True), VALUE in ast.unparse(changed))


def _read_assignment(statement: ast.stmt) -> tuple[str, ast.expr]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    raise NotTried("no assignment to a name")


def _find_namespace(file: str, live: Sequence[FunctionType]) -> dict[str, Any]:
    """Of a module, or of the cells."""
    # What runs comes first: a function may be left of an earlier run of the file.
    known = [names for names in (*_list_namespaces(), *(each.__globals__ for each in live)) if names.get("__file__") == file]
    if known:
        return known[0]
    if not cell_label(file):
        raise NotFound("its names are gone")
    return vars(sys.modules["__main__"])


def _list_namespaces() -> Iterator[dict[str, Any]]:
    """Of the calls under way, then of modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_globals
        frame = frame.f_back
    yield from (vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__"))


def _list_sources(edited: EditedFile) -> Iterator[tuple[str, ast.Module]]:
    """The file itself, with all other cells if it is one."""
    yield edited.file, edited.before
    for file in cells() if cell_label(edited.file) else ():
        if file == edited.file:
            continue
        try:
            yield file, ast.parse("".join(linecache.getlines(file)))
        except SyntaxError:  # such a cell has not run
            continue


def _is_of_the_step(use: Use, names: dict[str, Any], ran: Collection[Line]) -> bool:
    """Whether the value is read by the step alone: in a function that it ran, or where `devwidget` was called.

    A call of the model itself may have been before the model, or what it was given, had moved.
    """
    if use.inside is None:
        return _is_question(use.around, names)
    first, last = getattr(use.inside, "lineno", 0), getattr(use.inside, "end_lineno", 0)
    return any(file == use.file and first <= line <= last for file, line in ran)


def _is_question(around: Sequence[ast.AST], names: dict[str, Any]) -> bool:
    """Shown, asked for its shape and the like, or given to a function of `devwidget`."""
    if isinstance(around[0], ast.Attribute):
        return around[0].attr in _ASKED
    for each in around:
        if isinstance(each, ast.Call) and _is_ours(each.func, names):
            return True
        if not isinstance(each, ast.Tuple | ast.List | ast.Dict | ast.keyword | ast.Starred):
            return isinstance(each, ast.Expr) and each is around[0]
    return False


def _is_ours(func: ast.expr, names: dict[str, Any]) -> bool:
    while isinstance(func, ast.Attribute):
        func = func.value
    value = names.get(func.id) if isinstance(func, ast.Name) else None
    name = getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] == __name__.partition(".")[0]


def assign_again(assignment: Assignment, subjects: Subjects, inputs: Arguments) -> Arguments:
    """Give the name its new value; the arguments of the step with that in place of the old one.

    Raises:
        NotTried: if the old value is nothing that can be replaced, or the new one is no such thing.
    """
    names, name = assignment.names, assignment.name
    old = names[name]
    try:
        new = eval(assignment.value, names, {VALUE: old})
    except Exception as error:  # of what the statement would have raised where it stands, the trial knows nothing
        raise NotTried(f"{type(error).__name__}: {error}") from error
    if isinstance(old, nn.Module):
        if new is not old or not any(old is module for module in subjects.modules()):
            raise NotTried("it is another module, or none of the step's")
        return inputs
    pairs = {id(was): (was, now) for was, now in pair_tensors(old, new)}
    if not pairs:
        raise NotTried("it holds no tensor")
    if not assignment.reads_old:
        with torch.no_grad():
            for was, now in pairs.values():
                now.copy_(was)  # the numbers of the healed step, of which a new draw would have others
    names[name] = new
    args, kwargs, target = replace_tensors(
        (inputs.args, inputs.kwargs, inputs.target), lambda tensor: pairs[id(tensor)][1] if id(tensor) in pairs else tensor
    )
    return Arguments(args, kwargs, target)


def pair_tensors(old: Any, new: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each old tensor, alone or in containers such as a batch by names, with the new one in its place.

    Raises:
        NotTried: if more differs than where they are.
    """
    if is_tensor(old) and is_tensor(new) and _describe_tensor(old) == _describe_tensor(new) and old.is_leaf:
        yield old, new
    elif type(old) is type(new) is dict and list(old) == list(new):
        yield from pair_tensors([*old.values()], [*new.values()])
    elif type(old) is type(new) and type(old) in (list, tuple) and len(old) == len(new):
        for was, now in zip(old, new, strict=True):
            yield from pair_tensors(was, now)
    elif not (is_scalar(old) and is_scalar(new) and old == new):
        raise NotTried("it is another value, or none of tensors")


def _describe_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    return type(tensor), tensor.shape, tensor.requires_grad, tensor.layout


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_COMPREHENSIONS, *_FUNCTIONS, ast.ClassDef)


class Use(NamedTuple):
    """One place where the name stands.

    Attributes:
        around: what it stands in, from the inside out.
        inside: the innermost function or class of these.
    """

    file: str
    node: ast.Name
    around: list[ast.AST]
    inside: ast.AST | None

    @property
    def is_set(self) -> bool:
        """Assigned or deleted, not read."""
        return not isinstance(self.node.ctx, ast.Load)


def find_uses(name: str, sources: Iterable[tuple[str, ast.Module]]) -> Iterator[Use]:
    """Every use of a global name, without those of local names that are spelled alike."""
    for file, tree in sources:
        parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == name:
                around = list(_enclosing_nodes(node, parents))
                if not any(name in _local_names(each) for each in around):
                    inside = next((each for each in around if isinstance(each, (*_FUNCTIONS, ast.ClassDef))), None)
                    yield Use(file, node, around, inside)


def _enclosing_nodes(node: ast.AST, parents: dict[int, ast.AST]) -> Iterator[ast.AST]:
    while id(node) in parents:
        node = parents[id(node)]
        yield node


def _local_names(scope: ast.AST) -> set[str]:
    """Names that are local to a function or comprehension; those of a class are read by no method."""
    if not isinstance(scope, (*_FUNCTIONS, *_COMPREHENSIONS)):
        return set()
    inner = list(_own_nodes(scope))
    found = {each.id for each in inner if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    found |= {each.arg for each in inner if isinstance(each, ast.arg)}
    return found - {name for each in inner if isinstance(each, ast.Global) for name in each.names}


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """What is below a scope, without the scopes inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own_nodes(child)
