"""Device names: how the program itself writes the device that something must go to."""

from __future__ import annotations

import ast
import functools

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.syntax import arguments_in, nodes_in, targets_of, texts_in
from devwidget.rules.edits.source_file import Code, Scope, keyword_of, root_of


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
    for each in nodes_in(scope, ast.stmt):
        for target in targets_of(each):
            if isinstance(target, ast.Name) and code.scope(each) is scope:
                found.setdefault(target.id, []).append(getattr(each, "value", None) or ast.Constant(None))
    sure = code.bound(statement)
    for outer in code.around(statement):
        if isinstance(outer, ast.stmt):
            sure |= code.bound(outer)
    once = {name: values[0] for name, values in found.items() if len(values) == 1}
    asked = _list_asked_for(code.tree) & sure
    return {name: value for name, value in once.items() if name in asked}


@functools.lru_cache(maxsize=4)  # each keeps a syntax tree
def _list_asked_for(tree: ast.Module) -> frozenset[str]:
    """Return the names that calls of the file use as their device: `.to(device)`, `device=device`."""
    found: set[str] = set()
    for call in nodes_in(tree, ast.Call):
        asked = [keyword_of(call, "device")]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
            asked += call.args[:1]
        found |= {each.id for each in asked if isinstance(each, ast.Name)}
    return frozenset(found)


def _may_be(value: ast.expr, target: DeviceId | None) -> bool:
    """Whether a value that the text names is the target: `"cuda" if torch.cuda.is_available() else "cpu"`."""
    if target is None:
        return False
    words, whole = texts_in(value), str(target)
    if whole == "cpu":
        return words == ["cpu"]
    others = set(words) - {"cpu"}
    return others == {whole} or (others == {target.kind} and not target.index)


def is_move(call: ast.Call) -> bool:
    """Whether a method moves something: `.cuda()` and `.to(device)` do, `.to(torch.float64)` casts alone."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PLACING_METHODS:
        return False
    told = [*call.args[:1], keyword_of(call, "device")]
    return call.func.attr != "to" or not all(each is None or _is_dtype(each) for each in told)


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
    if method not in ("to", target.kind):
        return False
    return any(str(target) in each or f"{target.kind}:{each}" == str(target) for each in given)
