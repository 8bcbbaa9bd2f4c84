"""Values that the host reads: how a program uses them, and sums that can be read once after their loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.site import Site
from devwidget.records.syntax import name_of_called, targets_of
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


def read_after_loop(draft: Draft, statement: ast.stmt, expression: str) -> None:
    """Turn `total += loss.item()` into `total += loss.detach()`, and read the total after the loop.

    The draft stays empty if the loop itself reads the total, or another line assigns to it.
    """
    code, name = draft.code, _kept_in(statement)
    loop = _loop_that_keeps(code, statement, name)
    reads = []
    for node in code.alike(statement, expression):
        value = _read_by(node)
        if value is not None:
            reads.append((node, value))
    if loop is None or len(reads) != 1:
        return
    node, value = reads[0]
    if not _is_plain(code, statement, node) or not _imports_torch(code):
        return
    draft.replace(node, f"{code.text(value).removesuffix('.detach()')}.detach()")
    if isinstance(statement, ast.Expr):  # losses.append(...)
        total = f"torch.stack({name}).flatten().tolist() if {name} else {name}"
    else:
        total = f"torch.as_tensor({name}).item()"
    draft.insert_below(loop, f"{name} = {total}")


def _kept_in(statement: ast.stmt) -> str:
    """The variable of `total += ...` or `losses.append(...)`; "" for other statements."""
    match statement:
        case ast.AugAssign(op=ast.Add(), target=ast.Name(id=name)):
            return name
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)))):
            return name
    return ""


def _read_by(node: ast.expr) -> ast.expr | None:
    """`loss` of `loss.item()` and `float(loss)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="item", value=value), args=[]):
            return value
        case ast.Call(func=ast.Name(id="float"), args=[ast.Name() | ast.Attribute() | ast.Call() as value]):
            return value
    return None


def _is_plain(code: Code, statement: ast.stmt, node: ast.expr) -> bool:
    """Whether only arithmetic separates the value from the sum or list, so that a tensor works as well as a number."""
    match statement:
        case ast.AugAssign(value=kept) | ast.Expr(value=ast.Call(args=[kept, *_])):
            pass
        case _:
            return False
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
        if isinstance(each, ast.For | ast.While):
            loop = each
    if loop is None or loop.lineno <= begun[0].lineno:
        return None
    reads = set(ast.walk(loop)) - set(ast.walk(statement))
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        if node in reads or code.scope(node) is not scope:  # another function may read it at any time
            return None
    return loop


def _assigning(code: Code, scope: ast.AST, name: str) -> Iterator[ast.stmt]:
    for each in ast.walk(scope):
        if isinstance(each, ast.stmt) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets_of(each)
        ):
            yield each


def _begins(statement: ast.stmt) -> bool:
    """`total = 0.0`, `losses = []`, `total, count = 0.0, 0`."""
    if not isinstance(statement, ast.Assign):
        return False
    if isinstance(statement.value, ast.Tuple):
        return all(map(_is_start, statement.value.elts))
    return _is_start(statement.value)


def _is_start(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]):
            return True
        case ast.Constant(value=number):
            return type(number) in (int, float)
    return False


def _imports_torch(code: Code) -> bool:
    for node in ast.walk(code.tree):
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.asname is None and alias.name.partition(".")[0] == "torch":
                return True
    return False
