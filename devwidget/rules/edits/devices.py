"""Device names: how the program itself writes the device that something must go to."""

from __future__ import annotations

import ast
import functools

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.syntax import arguments_in, targets_of
from devwidget.rules.edits.source_file import Code, Scope, calls_in, keyword_of, root_of


def written_device(code: Code, statement: ast.stmt, target: DeviceId | None) -> str:
    """`device` where the program has given that name the right value before a statement, else the device as a literal."""
    scopes: list[Scope] = [code.scope(statement)]
    while not isinstance(scopes[-1], ast.Module):
        scopes.append(code.scope(scopes[-1]))
    for scope in scopes:
        for name, value in _named_devices(code, scope, statement).items():
            if _may_be(value, target):
                return name
    return repr(str(target))


def _named_devices(code: Code, scope: Scope, statement: ast.stmt) -> dict[str, ast.expr]:
    """Names that a scope gives a value once, in a line that has run for sure, and that are asked for as devices."""
    found: dict[str, list[ast.expr]] = {}
    for each in (node for node in ast.walk(scope) if isinstance(node, ast.stmt)):
        for target in targets_of(each):
            if isinstance(target, ast.Name) and code.scope(each) is scope:
                found.setdefault(target.id, []).append(getattr(each, "value", None) or ast.Constant(None))
    sure = {name for each in (statement, *code.around(statement)) if isinstance(each, ast.stmt) for name in code.bound(each)}
    asked = _list_asked_for(code.tree) & sure
    return {name: values[0] for name, values in found.items() if len(values) == 1 and name in asked}


@functools.lru_cache(maxsize=4)  # each keeps a syntax tree
def _list_asked_for(tree: ast.Module) -> frozenset[str]:
    """Return the names that calls of the file use as their device: `.to(device)`, `device=device`."""
    found: set[str] = set()
    for call in calls_in(tree):
        moved = call.args[:1] if isinstance(call.func, ast.Attribute) and call.func.attr == "to" else []
        found |= {each.id for each in (*moved, keyword_of(call, "device")) if isinstance(each, ast.Name)}
    return frozenset(found)


def _may_be(value: ast.expr, target: DeviceId | None) -> bool:
    """Whether a value that the text names is the target: `"cuda" if torch.cuda.is_available() else "cpu"`."""
    if target is None:
        return False
    words = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    texts = [word for word in words if word != "cpu"]
    whole = str(target)
    if whole == "cpu":
        return words == ["cpu"]
    return len(set(texts)) == 1 and (texts[0] == whole or (texts[0] == target.kind and not target.index))


def is_move(call: ast.Call) -> bool:
    """Whether a method moves something: `.cuda()` and `.to(device)` do, `.to(torch.float64)` casts alone."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PLACING_METHODS:
        return False
    told = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return call.func.attr != "to" or not all(map(_is_dtype, told))


def _is_dtype(node: ast.expr) -> bool:
    """`torch.float64` or `x.dtype`."""
    return isinstance(node, ast.Attribute) and (node.attr == "dtype" or root_of(ast.unparse(node)) == "torch")


def goes_to(call: ast.Call, target: DeviceId) -> bool:
    """Whether a call moves something to a device that it names: `.to("cuda:1")`, `.cuda(1)`, `.cuda()` for the first GPU."""
    if not isinstance(call.func, ast.Attribute):
        return False
    method, given = call.func.attr, [ast.unparse(each) for each in arguments_in(call)]
    if method == target.kind and not given:
        return not target.index
    names = [f"{target.kind}:{each}" if each.isdigit() else each for each in given]
    return method in ("to", target.kind) and any(str(target) in each for each in names)
