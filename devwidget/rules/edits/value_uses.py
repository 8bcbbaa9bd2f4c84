"""What a program does with a value that it has read, as far as its own function tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.site import Site
from devwidget.rules.edits.source_file import Code, code_at, own_lines

_PRINTS = frozenset({
    "add_scalar", "add_scalars", "critical", "debug", "error", "format", "info", "log", "log_metrics", "print",
    "set_description", "set_postfix", "warning", "write",
})  # fmt: skip
_KEEPS = frozenset({"__setattr__", "add", "append", "extend", "setdefault", "update"})
_OF_NUMBERS = ("np.", "numpy.", "math.", "statistics.")
"""Libraries whose functions give numbers for numbers."""
_PASSES = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "pow", "round", "str", "sum"})


def uses_of(site: Site | None, expression: str) -> frozenset[str]:
    """How the value of an expression at a line is used; what cannot be told is not among the words.

    Returns:
        `prints` (it is shown to people), `keeps` (it is added to a sum, a list or a field), `branches` (it decides what runs
        next), `indexes`, `steps` (an environment is given it), `calls` (some other function is), `computes`.
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
    """`y` for `label.item()` in a loop `for label in y`, or in a comprehension: what is read one by one; "" otherwise."""
    found = code_at(site)
    for node in found[0].alike(found[1], expression) if found is not None else ():
        name = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        for outer in found[0].around(node) if found is not None and isinstance(name, ast.Name) else ():
            if isinstance(outer, ast.For):
                loops = [outer]
            else:
                loops = getattr(outer, "generators", [])
            for loop in loops:
                if isinstance(loop.target, ast.Name) and isinstance(name, ast.Name) and loop.target.id == name.id:
                    return ast.unparse(loop.iter)
    return ""


def _uses(code: Code, node: ast.AST, *, follow: bool) -> Iterator[str]:
    """The uses of one expression; of a value that gets a name, those of the name."""
    inner: ast.AST = node
    for outer in code.around(node):
        use = _use(outer, inner)
        if use:
            yield use
            return
        if isinstance(outer, ast.stmt):
            names = [each.id for each in getattr(outer, "targets", ()) if isinstance(each, ast.Name)]
            if follow and names and len(names) == len(getattr(outer, "targets", ())):
                yield from _uses_of_name(code, outer, names[0])
            else:
                yield "computes"
            return
        inner = outer


def _use(outer: ast.AST, inner: ast.AST) -> str:
    """What the node around a value does with it; "" if it hands it on."""
    if isinstance(outer, ast.If | ast.While | ast.IfExp | ast.Assert) and outer.test is inner:
        return "branches"
    if isinstance(outer, ast.FormattedValue) or _is_formatting(outer):
        return "prints"
    if isinstance(outer, ast.Slice) or (isinstance(outer, ast.Subscript) and outer.slice is inner):
        return "indexes"
    if isinstance(outer, ast.AugAssign):
        return "keeps"
    if isinstance(outer, ast.Assign) and any(isinstance(each, ast.Subscript | ast.Attribute) for each in outer.targets):
        return "keeps"
    if isinstance(outer, ast.Call) and outer.func is not inner:
        return _use_of_argument(outer)
    return ""


def _use_of_argument(call: ast.Call) -> str:
    name = ast.unparse(call.func).rpartition(".")[2]
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
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
