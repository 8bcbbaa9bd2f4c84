"""Find out from the source whether a program limits the length of a container."""

from __future__ import annotations

import ast

from devwidget.capture.source_code.source_files import read_file


def is_limited(filename: str, expression: str, items: int) -> bool:
    """Return whether a file compares the length of the container that an expression leads to with more than its present items.

    Args:
        filename: the file.
        expression: such as `buffer.rows`; an attribute is known by its last name.
        items: number of items; a limit without a number, `len(self.rows) < self.capacity`, counts as one.
    """
    name = expression.rpartition(".")[2]
    for node in ast.walk(read_file(filename).tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(_is_length(each, name) for each in sides) and any(_allows_more(each, items) for each in sides):
                return True
    return False


def _allows_more(side: ast.expr, items: int) -> bool:
    match side:
        case ast.Constant(value=int(number)):
            return number > items
    return isinstance(side, ast.Name | ast.Attribute)


def _is_length(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=own) | ast.Attribute(attr=own)]):
            return own == name
    return False
