"""Uses of a global name in the text of a file, or of the cells: where it is set, and where it is read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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


def uses_of(name: str, sources: Iterable[tuple[str, ast.Module]]) -> Iterator[Use]:
    """Every use of a global name, without those of local names that are spelled alike."""
    for file, tree in sources:
        parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == name:
                around = list(_around(node, parents))
                if not any(name in _bound(each) for each in around):
                    inside = next((each for each in around if isinstance(each, (*_FUNCTIONS, ast.ClassDef))), None)
                    yield Use(file, node, around, inside)


def _around(node: ast.AST, parents: dict[int, ast.AST]) -> Iterator[ast.AST]:
    while id(node) in parents:
        node = parents[id(node)]
        yield node


def _bound(scope: ast.AST) -> set[str]:
    """Names that are local to a function or comprehension; those of a class are read by no method."""
    if not isinstance(scope, (*_FUNCTIONS, *_COMPREHENSIONS)):
        return set()
    inner = list(_own(scope))
    found = {each.id for each in inner if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    found |= {each.arg for each in inner if isinstance(each, ast.arg)}
    return found - {name for each in inner if isinstance(each, ast.Global) for name in each.names}


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What is below a scope, without the scopes inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own(child)
