"""Values that the host reads, and how a program uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.site import Site
from devwidget.records.syntax import name_of_called, own_lines
from devwidget.rules.edits.source_file import Code, code_at

_PRINTS = frozenset({
    "add_scalar", "add_scalars", "critical", "debug", "error", "format", "info", "log", "log_metrics", "print",
    "set_description", "set_postfix", "warning", "write",
})  # fmt: skip
_KEEPS = frozenset({"__setattr__", "add", "append", "extend", "setdefault", "update"})
_OF_NUMBERS = ("np.", "numpy.", "math.", "statistics.")
"""Libraries whose functions return numbers for numbers."""
_PASSES = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "pow", "round", "str", "sum"})


def uses_of(site: Site | None, expression: str) -> frozenset[str]:
    """Return how the value of an expression at a line is used; unknown uses are left out.

    Returns:
        `prints` (it is printed or logged), `keeps` (it is added to a sum, a list or a field), `branches` (it decides what runs
        next), `indexes`, `steps` (it is passed to an environment), `calls` (to another function), `computes`.
    """
    found = code_at(site)
    if found is None:
        return frozenset()
    code, statement = found
    nodes = code.alike(statement, expression)
    if any(_is_formatting(node) for node in nodes):
        return frozenset({"prints"})
    return frozenset(use for node in nodes for use in _uses(code, node, follow=True))


def loop_over(site: Site | None, expression: str) -> str:
    """Return `y` for `label.item()` in a loop or comprehension `for label in y`; "" for other reads."""
    found = code_at(site)
    if found is None:
        return ""
    code, statement = found
    for node in code.alike(statement, expression):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=variable))):
                for loop in loops_around(code, node):
                    if isinstance(loop.target, ast.Name) and loop.target.id == variable:
                        return ast.unparse(loop.iter)
    return ""


def loops_around(code: Code, node: ast.AST) -> Iterator[ast.For | ast.comprehension]:
    """Yield the `for` loops and comprehensions around an expression, innermost first."""
    for outer in code.around(node):
        if isinstance(outer, ast.For):
            yield outer
        else:
            yield from getattr(outer, "generators", ())


def _uses(code: Code, node: ast.AST, *, follow: bool) -> Iterator[str]:
    """Yield the uses of one expression; where the value is assigned to a name, the uses of the name."""
    inner: ast.AST = node
    for outer in code.around(node):
        use = _use(outer, inner)
        if use:
            yield use
            return
        if isinstance(outer, ast.stmt):
            name = _assigned_name(outer)
            if follow and name:
                yield from _uses_of_name(code, outer, name)
            else:
                yield "computes"
            return
        inner = outer


def _assigned_name(statement: ast.stmt) -> str:
    """The variable of `n = x.item()`; "" if the statement also assigns attributes or items."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name), *others]) if all(isinstance(each, ast.Name) for each in others):
            return name
    return ""


def _use(outer: ast.AST, inner: ast.AST) -> str:
    """What the node around a value does with it; "" if it only passes it on."""
    match outer:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test) if test is inner:
            return "branches"
        case ast.FormattedValue():
            return "prints"
        case ast.BinOp() if _is_formatting(outer):
            return "prints"
        case ast.Slice():
            return "indexes"
        case ast.Subscript(slice=index) if index is inner:
            return "indexes"
        case ast.AugAssign():
            return "keeps"
        case ast.Assign(targets=targets) if any(isinstance(each, ast.Subscript | ast.Attribute) for each in targets):
            return "keeps"
        case ast.Call(func=called) if called is not inner:
            return _use_of_argument(outer)
    return ""


def _use_of_argument(call: ast.Call) -> str:
    name = name_of_called(call)
    if name in _PRINTS:
        return "prints"
    if (name in _KEEPS and isinstance(call.func, ast.Attribute)) or name == "setattr":
        return "keeps"
    if name == "step":
        return "steps"
    passes = name in _PASSES and isinstance(call.func, ast.Name)
    if passes or ast.unparse(call.func).startswith(_OF_NUMBERS):
        return ""
    return "calls"


def _uses_of_name(code: Code, statement: ast.stmt, name: str) -> Iterator[str]:
    own = own_lines(statement)
    for node in ast.walk(code.scope(statement)):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno not in own:
            yield from _uses(code, node, follow=False)


def _is_formatting(node: ast.AST) -> bool:
    """`'%.3f' % loss`."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
    return False
