"""Values that the host reads: how a program uses them, and sums that can be read once after their loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.site import Site
from devwidget.records.syntax import targets_of
from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import Code, code_at, own_lines

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
    """Yield the uses of one expression; where the value is assigned to a name, the uses of the name."""
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
    """What the node around a value does with it; "" if it only passes it on."""
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


def read_after_loop(draft: Draft, statement: ast.stmt, expression: str) -> None:
    """Turn `total += loss.item()` into `total += loss.detach()`, and read the total after the loop.

    The draft stays empty if the loop itself reads the total, or another line assigns to it.
    """
    code, name = draft.code, _kept_in(statement)
    if name:
        loop = _loop_that_keeps(code, statement, name)
    else:
        loop = None
    inside = [(node, value) for node in code.alike(statement, expression) if (value := _read_by(node)) is not None]
    if loop is None or len(inside) != 1 or not _is_plain(code, statement, inside[0][0]) or not _imports_torch(code):
        return
    node, value = inside[0]
    draft.replace(node, f"{code.text(value).removesuffix('.detach()')}.detach()")
    listed = f"torch.stack({name}).flatten().tolist() if {name} else {name}"
    draft.insert_below(loop, f"{name} = {listed if isinstance(statement, ast.Expr) else f'torch.as_tensor({name}).item()'}")


def _kept_in(statement: ast.stmt) -> str:
    """The variable of `total += ...` or `losses.append(...)`; "" for other statements."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and isinstance(statement.target, ast.Name):
        return statement.target.id
    call = statement.value if isinstance(statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    appends = isinstance(method, ast.Attribute) and method.attr == "append" and isinstance(method.value, ast.Name)
    if appends and isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name):
        return method.value.id
    return ""


def _read_by(node: ast.expr) -> ast.expr | None:
    """`loss` of `loss.item()` and `float(loss)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        return node.func.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1:
        if isinstance(node.args[0], ast.Name | ast.Attribute | ast.Call):
            return node.args[0]
        return None
    return None


def _is_plain(code: Code, statement: ast.stmt, node: ast.expr) -> bool:
    """Whether only arithmetic separates the value from the sum or list, so that a tensor works as well as a number."""
    if isinstance(statement, ast.AugAssign):
        kept = statement.value
    else:
        kept = getattr(getattr(statement, "value", None), "args", [None])[0]
    while node is not kept:
        outer = code.parents.get(node)
        if not isinstance(outer, ast.BinOp):
            return False
        node = outer
    return True


def _loop_that_keeps(code: Code, statement: ast.stmt, name: str) -> ast.For | ast.While | None:
    """The outermost loop below the one line that starts the sum or list, if nothing in the loop reads it."""
    scope = code.scope(statement)
    begun = [each for each in _assigning(code, scope, name) if each is not statement]
    if len(begun) != 1 or not _begins(begun[0]):
        return None
    loop = None
    for each in code.around(statement):
        if each is scope or begun[0] in ast.walk(each):
            break
        loop = each if isinstance(each, ast.For | ast.While) else loop
    uses = [node for node in ast.walk(code.tree) if isinstance(node, ast.Name) and node.id == name]
    own = set(ast.walk(statement))
    if loop is not None:
        free = all(node in own or node not in set(ast.walk(loop)) for node in uses)
    else:
        free = False
    here = all(code.scope(node) is scope for node in uses)  # another function may read it at any time
    if isinstance(loop, ast.For | ast.While) and free and here and loop.lineno > begun[0].lineno:
        return loop
    return None


def _assigning(code: Code, scope: ast.AST, name: str) -> Iterator[ast.stmt]:
    for each in ast.walk(scope):
        if isinstance(each, ast.stmt) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets_of(each)
        ):
            yield each


def _begins(statement: ast.stmt) -> bool:
    """`total = 0.0`, `losses = []`, `total, count = 0.0, 0`."""
    value = getattr(statement, "value", None)
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    empty = [isinstance(part, ast.List) and not part.elts for part in parts]
    numbers = [isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in parts]
    return isinstance(statement, ast.Assign) and all(map(any, zip(empty, numbers, strict=True)))


def _imports_torch(code: Code) -> bool:
    names = (alias for node in ast.walk(code.tree) if isinstance(node, ast.Import) for alias in node.names)
    return any(alias.name.partition(".")[0] == "torch" and alias.asname is None for alias in names)
