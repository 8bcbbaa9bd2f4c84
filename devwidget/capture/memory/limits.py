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
            has_length = allows_more = False
            for side in (node.left, *node.comparators):
                match side:
                    case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=own) | ast.Attribute(attr=own)]) if own == name:
                        has_length = True
                    case ast.Constant(value=int(number)):
                        allows_more |= number > items
                    case ast.Name() | ast.Attribute():
                        allows_more = True
            if has_length and allows_more:
                return True
    return False
