"""host-sync: the host waits for a GPU value during forward or loss.

Why: a GPU works through a queue; `.item()` and its kin empty it, because Python needs the number now.
Bad: `if loss.item() > 1: ...` inside the loss.
Good: `torch.where(loss > 1, ...)`; read values once, after the step.
Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace, Wait
from devwidget.rules.registry import rule
from devwidget.rules.repairs.edits import Draft, chosen, mended


@rule("host-sync", needs=("forward",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each source line that waits; a line where a fault was found already is not told twice."""
    faulty = {(f.site.file, f.site.line) for f in trace.faults if f.site is not None}
    for wait in trace.waits:
        if wait.meant:
            continue
        if wait.site is None or (wait.site.file, wait.site.line) not in faulty:
            yield _finding(wait)


def _finding(wait: Wait) -> Finding:
    return Finding(
        kind="host-sync",
        severity="info" if wait.library else "warning",
        module=wait.module,
        headline=Message(
            "the host waits for {device} at `{shown}`, {times}",
            device=wait.device,
            shown=_shown(wait),
            times=Message("1 time") if wait.count == 1 else Message("{count} times", count=wait.count),
        ),
        why=Message("a GPU works through a queue, and Python can have the value only when the queue is empty"),
        fault=wait.site,
        fixes=chosen(_fixes(wait)),
    )


def _shown(wait: Wait) -> str:
    return wait.expression.replace("\n", " ") or wait.call.strip("_")


def _fixes(wait: Wait) -> Iterator[Fix | None]:
    yield mended(
        wait.site, Message("decide on the GPU with torch.where"), lambda draft, statement: _where(draft, statement, wait)
    )
    if wait.call in ("item", "__float__"):
        words = Message("keep the value on the GPU, as a tensor")
        yield mended(wait.site, words, lambda draft, statement: _kept(draft, statement, wait))
    if wait.call in ("numpy", "__array__"):
        yield Fix(
            Message(
                "stay on the GPU: most of numpy has a torch operation of the same name (torch.hann_window for np.hanning); "
                "constants belong in a buffer, register_buffer"
            ),
            "",
            "likely",
        )
    elif wait.call == "__bool__":
        yield Fix(Message("decide on the GPU with torch.where or a mask, without an `if` on a tensor"), "", "likely")
    else:
        yield Fix(
            Message("decide on the GPU, with torch.where, a mask or a fixed number of steps, without .item()"), "", "likely"
        )
    yield Fix(Message("or read the value once, after the step, from .detach()"), "", "choice")


def _where(draft: Draft, statement: ast.stmt, wait: Wait) -> None:
    """`if c: x = a` becomes `x = torch.where(c, a, x)`, and `x = a if c else b` becomes `x = torch.where(c, a, b)`."""
    text = draft.code.text
    if isinstance(statement, ast.If) and len(statement.body) == 1 and len(statement.orelse) < 2:
        done, other = statement.body[0], statement.orelse[0] if statement.orelse else None
        if not _sets_name(done) or (other is not None and (not _sets_name(other) or _name(other) != _name(done))):
            return
        test, value = _on_gpu(draft, statement.test, wait), text(done.value)  # type: ignore[attr-defined]
        rest = text(other.value) if other is not None else _name(done)  # type: ignore[attr-defined]
        if test:
            draft.rewrite(statement, f"{_name(done)} = torch.where({test}, {value}, {rest})")
    for node in draft.code.parts(statement) if not isinstance(statement, ast.If) else ():
        if isinstance(node, ast.IfExp) and (test := _on_gpu(draft, node.test, wait)):
            draft.replace(node, f"torch.where({test}, {text(node.body)}, {text(node.orelse)})")


def _sets_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _name(node: ast.stmt) -> str:
    return ast.unparse(node.targets[0])  # type: ignore[attr-defined]


def _on_gpu(draft: Draft, test: ast.expr, wait: Wait) -> str:
    """A condition without its `.item()`; "" for one that is more than a comparison or a call."""
    text = draft.code.text(test)
    if isinstance(test, ast.BoolOp) or not isinstance(test, ast.Compare | ast.Call):
        return ""
    return text.replace(".item()", "") if wait.call in ("item", "__bool__") else ""


def _kept(draft: Draft, statement: ast.stmt, wait: Wait) -> None:
    """`scale = x.max().item()` becomes `scale = x.max()`: a tensor of no dimension computes like the number."""
    if not isinstance(statement, ast.Assign | ast.Return | ast.AugAssign):
        return
    for node in draft.code.alike(statement, wait.expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
            draft.replace(node, draft.code.text(node.func.value))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1:
            draft.replace(node, draft.code.text(node.args[0]))
