"""Memory that a program keeps needlessly: sums and lists of tensors with their graphs, and results that a notebook displays."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from devwidget.records.finding import Finding, Fix
from devwidget.records.held_memory import DeviceHolders, MemoryHolder
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cells
from devwidget.records.syntax import (
    Function,
    argument_names,
    arguments_in,
    calls_named,
    name_of_called,
    nodes_in,
    owner_text,
    targets_of,
)
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_at, code_of_site, has_torch
from devwidget.rules.found import Found, make_finding

KIND = "kept-memory"
LEAST_SHARE = 1 / 4
"""Share of the memory in use that a holder must keep to be a cause."""
_DIFFERENTIATES = frozenset({"backward", "grad", "manual_backward"})
_TRAINS = _DIFFERENTIATES | {"step", "fit", "train_step", "training_step"}
_WITHOUT_GRAPH = frozenset({"item", "detach", "tolist", "numpy", "float", "int", "print", "len", "str", "argmax"})
_GROWS = frozenset({"append", "appendleft", "extend", "add", "insert"})
_GRAPH = Message("autograd keeps what backward needs as long as a tensor that requires grad is referenced")
_HELD = Message("tensors that a variable references are not freed")
_DISPLAYED = Message("IPython keeps the value of a cell's last line in `Out` and `_`, with its graph")
_NO_GRAD = Message("run the loop without gradients, since no backward follows")
_DETACH = Message("keep the values without their graph")
_CPU = Message("keep them in host memory")
_SEMICOLON = Message("end the cell with `;`, so that its value is not kept")
_FORGET = Message("free the results that are kept now: display `0` in three cells, then")


def find_kept_memory(held: DeviceHolders, frames: Sequence[Site]) -> tuple[Finding, ...]:
    """Return what keeps a large part of the memory of a device needlessly, most bytes first.

    Args:
        held: the device and its holders when an allocation failed.
        frames: the user's lines that were running, outermost first.
    """
    found = []
    for holder in held.holders:
        if holder.bytes >= LEAST_SHARE * held.allocated and holder.site is not None and holder.place != "output":
            found.append(_judge_holder(held, holder, holder.site, frames))
    found.append(_judge_results(held))
    return tuple(each for each in found if each is not None)


def _judge_holder(held: DeviceHolders, holder: MemoryHolder, site: Site, frames: Sequence[Site]) -> Finding | None:
    """Return the finding about a sum or a list that grows at a line, unless it may be differentiated."""
    known = code_at(site)
    if known is None:
        return None
    code, statement = known
    name, added = _read_addition(statement)
    loop, scope = _loop_around(code, statement), code.scope(statement)
    grows = loop is not None or (isinstance(scope, Function) and name not in _own_names(scope))
    if not name or not grows or (holder.items < 2 and not holder.is_graph):
        return None
    flow = _Flow(code, frames)
    if holder.graph and flow.is_differentiated(code, scope, name):
        return None
    fixes: list[Fix | None] = []
    if holder.is_graph and loop is not None and not flow.calls(loop, _TRAINS) and _is_computed(loop, added):
        fixes.append(_run_without_gradients(code, loop))
    if added is not None:
        fixes.append(_keep_values(code, added, holder))
    why = _GRAPH if holder.is_graph else _HELD
    return make_finding(KIND, "error", why, Found(site, _headline(held, holder), fixes=fixes))


def _keep_values(code: Code, added: ast.expr, holder: MemoryHolder) -> Fix | None:
    """Return the edit of what is added: without its graph, or in host memory; words if tensors are inside of it."""
    summary = _DETACH if holder.is_graph else _CPU
    if not holder.has_tensors or isinstance(added, ast.Tuple | ast.List | ast.Dict):
        return Fix(summary, confidence="choice")
    draft = Draft(code)
    if holder.is_graph:
        draft.append(added, ".detach()")
    elif isinstance(added, ast.Call) and name_of_called(added) in ("cuda", "to"):
        draft.drop_method(added)
    else:
        draft.append(added, ".detach().cpu()")
    return fix(summary, draft, "choice")


def _headline(held: DeviceHolders, holder: MemoryHolder) -> Message:
    facts = {"name": holder.name, "kind": holder.kind, "count": holder.items, **_share(held, holder.bytes)}
    if not holder.items:
        return Message("`{name}` keeps the graphs of all its terms, {share} of the memory in use on {device}", **facts)
    return Message("{kind} `{name}` keeps {count} items, {share} of the memory in use on {device}", **facts)


def _share(held: DeviceHolders, size: int) -> dict[str, str]:
    return {"share": f"{size / held.allocated:.0%}", "device": str(held.device)}


def _judge_results(held: DeviceHolders) -> Finding | None:
    """Return the finding about displayed results."""
    results = [each for each in held.holders if each.place == "output"]
    size = sum(each.bytes for each in results)
    if size < LEAST_SHARE * held.allocated or not any(each.freed for each in results):
        return None
    names = Message("they are {names}", names=", ".join(f"`{each.name}`" for each in results))
    headline = Message("displayed results keep {share} of the memory in use on {device}", **_share(held, size))
    fixes = [Fix(_SEMICOLON), Fix(_FORGET, "%reset -f out", "choice")]
    return make_finding(KIND, "error", _DISPLAYED, Found(None, headline, fixes=fixes, notes=(names,)))


# -- the line


def _loop_around(code: Code, statement: ast.stmt) -> ast.stmt | None:
    for node in code.around(statement):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            return node
        if isinstance(node, Function | ast.ClassDef):
            return None
    return None


def _read_addition(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return what grows at a statement, and what is added: `losses`, `loss` for `losses.append(loss)` and `losses += loss`.

    `state`, None for `out, state = cell(x, state)`; "" for other statements.
    """
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append" | "appendleft" | "add"), args=[value])):
            return owner_text(owner), value
        case (
            ast.AugAssign(target=target, op=ast.Add(), value=value)
            | ast.Assign(targets=[ast.Subscript() as target], value=value)
        ):
            return owner_text(target), value
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if _is_read(value, {owner_text(target)}):
            return owner_text(target), _find_term(value, owner_text(target))
        case ast.Assign(value=value):
            names = map(owner_text, targets_of(statement))
            return next((name for name in names if _is_read(value, {name})), ""), None
    return "", None


def _find_term(value: ast.expr, name: str) -> ast.expr:
    """Return `loss` for `total + loss`, else the whole value."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if owner_text(left) == name:
            return right
        case ast.BinOp(left=left, op=ast.Add(), right=right) if owner_text(right) == name:
            return left
    return value


def _is_computed(loop: ast.stmt, added: ast.expr | None) -> bool:
    """Return whether a loop computes what it adds; without one assignment it is an item that the loop iterates over."""
    if not isinstance(added, ast.Name):
        return True
    return any(added.id in map(owner_text, targets_of(each)) for each in nodes_in(loop, ast.Assign))


def _run_without_gradients(code: Code, loop: ast.stmt) -> Fix | None:
    """Return the edit that puts a loop under `torch.no_grad()`."""
    texts = nodes_in(loop, ast.Constant, ast.JoinedStr)
    if any(node.lineno != node.end_lineno for node in texts) or not has_torch(code):
        return None
    block = textwrap.dedent(" " * loop.col_offset + code.text(loop))
    draft = Draft(code)
    draft.rewrite(loop, "with torch.no_grad():\n" + textwrap.indent(block, "    "))
    return fix(_NO_GRAD, draft)


# -- where its values go


class _Flow:
    """Where the values of a variable go, in the source of the program.

    Args:
        code: file of the variable.
        frames: the user's lines that were running.
    """

    def __init__(self, code: Code, frames: Sequence[Site]) -> None:
        self._followed: set[str] = set()
        codes = {code.file: code}
        for site in (*(Site(file, 1) for file in cells()), *frames):
            other = code_of_site(site)
            if other is not None:
                codes.setdefault(other.file, other)
        self._codes = list(codes.values())

    def is_differentiated(self, code: Code, scope: ast.AST, name: str) -> bool:
        """Return whether backward may get a value of a variable."""
        if isinstance(scope, Function) and name in argument_names(scope):
            return True
        if isinstance(scope, Function) and name in _own_names(scope):
            return self._reaches_backward(code, scope, {name})
        return any(self._reaches_backward(each, each.tree, {name}) for each in self._codes)

    def calls(self, part: ast.AST, names: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        """Return whether a part of the program calls a function of these names, itself or in functions of the program."""
        called = set(map(name_of_called, nodes_in(part, ast.Call)))
        if called & names:
            return True
        inner = seen | called
        return any(self.calls(each, names, inner) for name in called - seen for each in self._functions_named(name))

    def _functions_named(self, name: str) -> Iterator[ast.AST]:
        for code in self._codes:
            for node in nodes_in(code.tree, ast.FunctionDef, ast.AsyncFunctionDef):
                if getattr(node, "name", "") == name:
                    yield node

    def _reaches_backward(self, code: Code, scope: ast.AST, names: set[str]) -> bool:
        names = _spread(scope, names)
        for node in _nodes_of(scope, names):
            match node:
                case ast.Call() if _is_read(node, names) and name_of_called(node) in _DIFFERENTIATES:
                    return True
                case ast.Call() if any(_is_read(each, names) for each in arguments_in(node)):
                    functions = self._functions_named(name_of_called(node))
                    if any(self.calls(each, _DIFFERENTIATES) for each in functions):
                        return True
                case ast.Return() | ast.Yield() | ast.YieldFrom() if _is_read(node, names):
                    if self._is_result_differentiated(getattr(code.scope(node), "name", "")):
                        return True
        return False

    def _is_result_differentiated(self, function: str) -> bool:
        """Return whether callers of a function may pass its result to backward; True if all are out of sight."""
        if function in self._followed:
            return False
        self._followed.add(function)
        callers = []
        for code in self._codes:
            callers += [(code, call) for call in calls_named(ast.walk(code.tree), function)]
        result = {f"{function}()"}
        return not callers or any(self._reaches_backward(code, code.scope(call), result) for code, call in callers)


def _nodes_of(scope: ast.AST, names: set[str]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without inner functions that have a variable of their own of one of these names."""
    todo = [scope]
    while todo:
        node = todo.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, Function) or not names & _own_names(child):
                todo.append(child)


def _own_names(function: Function) -> set[str]:
    """Return the variables of a function: not `cache` for `cache[key] = value`."""
    targets = [target for node in ast.walk(function) for target in targets_of(node)]
    return argument_names(function) | {target.id for target in targets if isinstance(target, ast.Name)}


def _spread(scope: ast.AST, names: set[str]) -> set[str]:
    """Return these variables and all that get values computed from them."""
    found, count = set(names), 0
    while count < len(found):
        count = len(found)
        for node in _nodes_of(scope, found):
            match node:
                case ast.Assign(value=value) | ast.AugAssign(value=value) if _is_read(value, found):
                    found |= {owner_text(target) for target in targets_of(node)}
                case ast.For(target=target, iter=values) | ast.comprehension(target=target, iter=values):
                    found |= {owner_text(target)} if _is_read(values, found) else set()
                case ast.Call(func=ast.Attribute(value=owner, attr=method), args=values) if method in _GROWS:
                    found |= {owner_text(owner)} if any(_is_read(each, found) for each in values) else set()
    return found - {""}


def _is_read(node: ast.AST, names: set[str]) -> bool:
    """Return whether a part of the program reads one of these variables, or results such as `validate()`, with its graph."""
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        match part:
            case ast.Call() if f"{name_of_called(part)}()" in names:
                return True
            case ast.Call() if part is not node and name_of_called(part) in _WITHOUT_GRAPH:
                continue
            case ast.Name() | ast.Attribute() if owner_text(part) in names:
                return True
        todo += ast.iter_child_nodes(part)
    return False
