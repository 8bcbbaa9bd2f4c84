"""Loops and comprehensions: which item of what they run over each of their variables is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

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
