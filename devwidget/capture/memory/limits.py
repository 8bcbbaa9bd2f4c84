"""Find out from the source what a program does with a container: limit its length, or read it as the result of a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from devwidget.capture.source_code.source_files import read_file
from devwidget.records.syntax import targets_of

_REMOVING = frozenset({"clear", "pop", "popitem", "popleft", "remove"})


def is_limited(filenames: Iterable[str], expression: str) -> bool:
    """Return whether one of these files limits the container that an expression leads to, such as `self.items`: it compares the
    length, removes items or starts anew in a loop.

    An attribute is known by its last name.
    """
    _, dot, name = expression.rpartition(".")
    return any(_limits(tree, dot + name) for tree in (read_file(each).tree for each in filenames))


def find_limit(filenames: Iterable[str], expression: str, numbers: Mapping[str, int]) -> int:
    """Return the number that one of these files compares the length of a container with; 0 if none is known.

    Args:
        numbers: values of fields and variables, such as that of `capacity` in `len(self.items) < self.capacity`.
    """
    _, dot, name = expression.rpartition(".")
    for node in (node for each in filenames for node in ast.walk(read_file(each).tree)):
        if isinstance(node, ast.Compare) and _is_limit(node, dot + name, in_loop=False):
            for side in (node.left, *node.comparators):
                match side:
                    case ast.Constant(value=int(number)):
                        return number
                    case ast.Attribute(attr=field) | ast.Name(id=field) if field in numbers:
                        return numbers[field]
    return 0


def is_result(filename: str, line: int, name: str) -> bool:
    """Return whether the function around a line reads a variable as a whole: `torch.stack(losses)`, `return losses`."""
    file = read_file(filename)
    scope = next(iter(file.functions_around(line)), file.tree)
    return any(_reads_whole(node, name) for node in ast.walk(scope))


def _reads_whole(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len" | "print")):
            return False
        case ast.Call(args=values):
            return any(isinstance(each, ast.Name) and each.id == name for each in values)
        case ast.Return(value=ast.Name(id=own)) | ast.For(iter=ast.Name(id=own)) | ast.comprehension(iter=ast.Name(id=own)):
            return own == name
    return False


def _limits(tree: ast.AST, name: str) -> bool:
    loops = [each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While)]
    in_loops = {id(node) for loop in loops for node in ast.walk(loop)}
    return any(_is_limit(node, name, in_loop=id(node) in in_loops) for node in ast.walk(tree))


def _is_limit(node: ast.AST, name: str, *, in_loop: bool) -> bool:
    match node:
        case ast.Compare():
            return any(_is_length(each, name) for each in (node.left, *node.comparators))
        case ast.Call(func=ast.Attribute(attr=method, value=owner)):
            return method in _REMOVING and _is_named(owner, name)
        case ast.Delete(targets=targets):
            return any(isinstance(each, ast.Subscript) and _is_named(each.value, name) for each in targets)
        case ast.Assign():  # `losses = []` in a loop over epochs, or `losses = losses[-100:]`
            is_new = in_loop or isinstance(node.value, ast.Subscript)
            return is_new and any(_is_named(each, name) for each in targets_of(node))
    return False


def _is_length(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[counted]):
            return _is_named(counted, name)
    return False


def _is_named(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Name(id=own):
            return own == name
        case ast.Attribute(attr=own):
            return f".{own}" == name
    return False
