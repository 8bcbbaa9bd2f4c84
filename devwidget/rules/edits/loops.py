"""Loops for which the host waits: a `break` becomes a mask, and items chosen one by one are chosen at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import Code

_NAMES = ("done", "finished", "has_ended")


def index_at_once(draft: Draft, statement: ast.stmt, expression: str) -> None:
    """`torch.stack([table[i] for i in order])` becomes `table[order]`."""
    code = draft.code
    for node in code.alike(statement, expression):
        listed = code.parents.get(node)
        stack = code.parents.get(listed) if isinstance(listed, ast.ListComp) else None
        if not isinstance(node, ast.Subscript) or not isinstance(listed, ast.ListComp) or not isinstance(stack, ast.Call):
            continue
        (loop, *more), index = listed.generators, node.slice
        whole = isinstance(index, ast.Name) and ast.dump(loop.target) == ast.dump(index).replace("Load()", "Store()")
        if whole and not more and not loop.ifs and isinstance(loop.iter, ast.Name | ast.Attribute) and _stacks_first(stack):
            draft.replace(stack, f"{code.text(node.value)}[{code.text(loop.iter)}]")


def _stacks_first(call: ast.Call) -> bool:
    """`torch.stack(items)` and `torch.stack(items, dim=0)`."""
    dims = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    return ast.unparse(call.func) == "torch.stack" and all(isinstance(dim, ast.Constant) and dim.value == 0 for dim in dims)


def run_all_turns(draft: Draft, statement: ast.stmt, test: str) -> None:
    """`h = cell(h)` and `if test: break` become `h = torch.where(done, h, cell(h))` and `done = done | test`.

    The values are those of the loop that stops; nothing is edited where more than plain assignments would run once more.

    Args:
        test: the condition as a tensor, without `.item()`.
    """
    code = draft.code
    loop = _loop_that_ends(code, statement)
    if loop is not None:
        pairs = list(_list_assignments(loop))
    else:
        pairs = []
    if loop is None or not pairs or not all(isinstance(target, ast.Name) for target, _ in pairs):
        return
    names = {target.id for target, _ in pairs if isinstance(target, ast.Name)}
    carried = sorted(names & code.bound(loop))
    done = next((name for name in _NAMES if name not in {n.id for n in _names_in(code.scope(loop))}), "")
    if not carried or not done or _is_read_later(code, loop, names - set(carried)) or _is_no_tensor(code, loop, carried):
        return
    for target, value in pairs:
        if isinstance(target, ast.Name) and target.id in carried:
            draft.replace(value, f"torch.where({done}, {target.id}, {code.text(value)})")
    draft.insert_above(loop, f"{done} = torch.zeros((), dtype=torch.bool, device={carried[0]}.device)")
    draft.rewrite(statement, f"{done} = {done} | ({test})")


def _loop_that_ends(code: Code, statement: ast.stmt) -> ast.For | None:
    """The loop whose last statement is this `if test: break`."""
    loop = code.parents.get(statement)
    if not isinstance(loop, ast.For) or loop.orelse or loop.body[-1] is not statement:
        return None
    if not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) != "range":
        return None  # what hands out its items may do more than that
    ends = isinstance(statement, ast.If) and not statement.orelse and [*map(type, statement.body)] == [ast.Break]
    if ends:
        return loop
    return None


def _list_assignments(loop: ast.For | None) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Each target with its value, pairs of tuples opened; a target of None for any statement that does more."""
    for each in loop.body[:-1] if loop is not None else ():
        if not isinstance(each, ast.Assign) or len(each.targets) != 1:
            yield None, ast.Constant(None)
            continue
        target, value = each.targets[0], each.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _names_in(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def _is_read_later(code: Code, loop: ast.For, names: set[str]) -> bool:
    """Whether something that tells at which turn the loop ended is read below it."""
    told = names | {each.id for each in _names_in(loop.target)}
    last = loop.end_lineno or loop.lineno
    return any(n.id in told and isinstance(n.ctx, ast.Load) and n.lineno > last for n in _names_in(code.scope(loop)))


def _is_no_tensor(code: Code, loop: ast.For, names: list[str]) -> bool:
    """Whether a name is seen to be a number, a tuple or the like, of which `torch.where` chooses none."""
    plain = (ast.Constant, ast.Tuple, ast.List, ast.Dict)
    values = [n for n in ast.walk(code.scope(loop)) if isinstance(n, ast.Assign) and isinstance(n.value, plain)]
    return any(isinstance(t, ast.Name) and t.id in names for each in values for t in each.targets)
