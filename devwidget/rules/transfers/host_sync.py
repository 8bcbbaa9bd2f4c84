"""host-sync: Python waits for a value on a GPU, inside the step or after every step.

Why: a GPU works through a queue; `.item()` and similar calls wait until it is empty.
Bad: `if loss.item() > 1: ...` inside the loss; `[label.item() for label in y]` in the loop.
Good: `torch.where(loss > 1, ...)`; sums kept on the GPU and read once per epoch.
Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

from devwidget.records.finding import Fix, Severity
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import nodes_in, parsed_expression
from devwidget.records.trace import Trace, Wait
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.host_reads import loop_over, uses_of
from devwidget.rules.registry import rule

_FORMATS = frozenset({"__repr__", "__str__", "__format__"})
_LISTS = frozenset({"tensor", "as_tensor", "asarray"})
"""Calls that read a list of tensors one by one."""
_VALUES = _FORMATS | _LISTS | {
    "item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__contains__", "numpy", "__array__",
    "allclose", "equal", "is_nonzero",
}  # fmt: skip
"""Calls that return values to Python."""
_CHOICES = frozenset({"argwhere", "nonzero", "where"})
"""Calls that select what the step computes with, such as the rows of an expert."""
_SIZES = _CHOICES | {
    "__getitem__", "__setitem__", "bincount", "masked_select", "repeat_interleave", "unique", "unique_consecutive",
}  # fmt: skip
"""Calls whose result has a size that the host must know, and slices by a number on a GPU."""
_COPIES = frozenset({"copy_", "cpu", "to", "type"})
"""Calls that copy to the CPU, and sync for it."""
_COUNTER = "step"
"""Stands for the read of a `step` counter by an optimizer of torch."""
_MANY = 4
"""Copies, or syncs of a library, in a row: the few results of a step are fewer than the samples of a batch."""
_FOR_PEOPLE = frozenset({"prints", "keeps"})
_CONDITIONS = ("if ", "elif ", "while ", "assert ")


@rule(
    "host-sync",
    "warning",
    needs=("forward",),
    why=Message("a GPU runs asynchronously; Python gets the value only after all queued work has finished"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each source line that syncs, except lines that already have a fault."""
    faulty = {_line_of(fault.site) for fault in trace.faults}
    for wait in _by_line(trace.waits):
        if wait.meant or (wait.site is not None and _line_of(wait.site) in faulty):
            continue
        if wait.call in _FORMATS:
            uses = frozenset({"prints"})
        else:
            uses = uses_of(wait.site, wait.expression)
        severity = _severity(wait, uses, trace.steps)
        if severity is not None:
            yield _make_finding(wait, severity, uses, trace.steps)


def _by_line(waits: Iterable[Wait]) -> list[Wait]:
    """Add up the syncs of each expression, over all parts of the step; most frequent first."""
    lines: dict[object, Wait] = {}
    for wait in waits:
        key = (_line_of(wait.site), wait.expression, wait.call, wait.device, wait.library, wait.in_step, wait.meant)
        known = lines.get(key)
        if known:
            lines[key] = dataclasses.replace(known, count=known.count + wait.count, turns=known.turns + wait.turns)
        else:
            lines[key] = wait
    return sorted(lines.values(), key=lambda wait: -wait.count)


def _line_of(site: Site | None) -> tuple[str, int] | None:
    if site is None:
        return None
    return site.file, site.line


def _severity(wait: Wait, uses: frozenset[str], steps: int) -> Severity | None:
    """Many syncs in a step stop the GPU each time, one keeps Python from running ahead, one in total costs nothing."""
    is_of_model = wait.in_step and wait.phase in ("forward", "loss")
    if wait.call == _COUNTER or wait.call in _COPIES or (wait.library and not is_of_model):
        return "info" if not is_of_model and _is_repeated(wait, steps) else None
    if wait.call not in _VALUES | _SIZES:
        return None
    if wait.library:
        return "info"
    if wait.in_step and wait.phase != "optimizer":  # forward is long finished when the optimizer reads a value
        return _severity_in_step(wait, uses)
    if "steps" in uses:  # the input of an environment
        return None
    if wait.turns < 2 and not wait.in_step:  # a final result, if there are more steps
        is_loop = steps == 1 and wait.count >= _MANY and "prints" not in uses
        return "info" if is_loop else None
    if _is_often(wait):
        return "warning" if wait.count >= 2 * steps else None
    return "info" if wait.turns > 1 and 2 * wait.turns > steps else None


def _is_repeated(wait: Wait, steps: int) -> bool:
    """Whether copies, or syncs of a library that a program can do without, are many in most steps."""
    if wait.call != _COUNTER and wait.library and (wait.called is None or wait.call not in _VALUES | _SIZES):
        return False  # torch itself, as in a gradient scaler, or a copy that the library needs
    is_in_most = wait.in_step or (wait.turns > 1 and 2 * wait.turns > steps)
    return is_in_most and wait.count >= _MANY * max(wait.turns, 1)


def _severity_in_step(wait: Wait, uses: frozenset[str]) -> Severity:
    if wait.call in _CHOICES:
        return "info"
    is_light = wait.call in _SIZES or _is_for_people(uses)
    if is_light and not _is_often(wait):
        return "info"
    return "warning"


def _is_for_people(uses: frozenset[str]) -> bool:
    return bool(uses) and uses <= _FOR_PEOPLE


def _is_often(wait: Wait) -> bool:
    """Whether it syncs several times before the program calls its model again."""
    return wait.turns > 0 and wait.count >= 2 * wait.turns


def _make_finding(wait: Wait, severity: Severity, uses: frozenset[str], steps: int) -> Found:
    notes = [*_costs(wait)]
    if wait.called is not None:
        notes.append(Message("called at {place}", place=wait.called))
    return Found(
        wait,
        _headline(wait, steps),
        notes=notes,
        fixes=_list_fixes(wait, uses),
        no_edit=_why_no_edit(wait, uses) if severity == "warning" else None,
        severity=severity,
    )


def _headline(wait: Wait, steps: int) -> Message:
    times = Message.of(wait.count, "{count} time", "{count} times", count=wait.count)
    if steps > 1 and wait.turns > 1:
        times = Message("{times} in {steps} steps", times=times, steps=steps)
    return Message("`{shown}` syncs with {device}, {times}", device=wait.device, shown=_show_wait(wait), times=times)


def _why_no_edit(wait: Wait, uses: frozenset[str]) -> Message:
    if wait.call == "__bool__" or "branches" in uses:
        return Message("no edit: the branch must become arithmetic on the GPU")
    return Message("no edit: the line that computes the value and the lines that use it must change together")


def _costs(wait: Wait) -> Iterator[str]:
    if wait.call == _COUNTER:
        yield Message("the counters in the optimizer's state, such as `step`, are on {device}", device=wait.device)
    if _is_often(wait) and wait.turns > 1:
        often = f"{wait.count / wait.turns:.0f}"
        yield Message("about {often} syncs in a row; each one leaves the GPU idle until Python resumes", often=often)
    elif not wait.in_step:
        yield Message("each step leaves the GPU idle until Python resumes; the cost is small if a step is long")


def _show_wait(wait: Wait) -> str:
    if wait.call == "__bool__":
        text = wait.site.text if wait.site is not None else ""
        # Python reports the position of the first operand of `and` and `or` for the next one as well
        if f"{wait.expression} and " in text or f"{wait.expression} or " in text:
            return _condition(text)
        if wait.expression.startswith(_CONDITIONS):
            return _condition(wait.expression)
    return wait.expression.replace("\n", " ") or wait.call.strip("_")


def _condition(statement: str) -> str:
    return statement.partition("\n")[0].rstrip(" :")


def _list_fixes(wait: Wait, uses: frozenset[str]) -> Iterator[Fix | None]:
    if wait.call == _COUNTER:
        loop = 'for state in optimizer.state.values():\n    state["step"] = state["step"].cpu()'
        yield Fix(Message("move the counters to the CPU after the state is loaded"), loop)
        yield Fix(Message("set `capturable=True`, which computes with the counters on the GPU"), confidence="choice")
    if wait.library:
        return
    if _is_often(wait):
        over = loop_over(wait.site, wait.expression)
    else:
        over = ""
    if wait.call in _COPIES:
        yield Fix(Message("copy all of them at once"), f"{over}.cpu()" if over else "")
    elif over:
        yield Fix(Message("read all values at once"), f"{over}.tolist()")
    elif wait.call in _LISTS:
        yield Fix(Message("join them on the GPU with torch.stack, which also keeps their gradients"))
    elif "indexes" in uses or (wait.call in ("__getitem__", "__setitem__", "__index__") and not _is_chosen(wait.expression)):
        yield Fix(Message("select on the GPU with index_select, index_copy_ or torch.where, or keep the index in Python"))
    elif wait.call in _SIZES:
        yield Fix(
            Message("keep the size fixed: use torch.where, or multiply by the mask; a mean is (x * mask).sum() / mask.sum()")
        )
    elif not wait.in_step or _is_for_people(uses):
        yield from _list_later_reads(uses)
    else:
        yield from _on_the_gpu(wait)


def _is_chosen(expression: str) -> bool:
    """`x[mask]`, and not `x[:length]`."""
    node = parsed_expression(expression)
    if not isinstance(node, ast.Subscript):
        return False
    slices = nodes_in(node.slice, ast.Slice)
    return all(part.lower is None and part.upper is None for part in slices)


def _list_later_reads(uses: frozenset[str]) -> Iterator[Fix]:
    """Fixes for a value that can be read later."""
    if "keeps" in uses:
        words = Message("keep sums and lists on the GPU with `.detach()` instead of `.item()`, and read them once per epoch")
        yield Fix(words)
    else:
        yield Fix(Message("read it every few steps"))
    yield Fix(Message("copy it with non_blocking=True, and read the copy one step later"), confidence="choice")


def _on_the_gpu(wait: Wait) -> Iterator[Fix | None]:
    """Fixes for a value that the step computes with."""
    yield mended(wait.site, Message("use torch.where"), _where, wait)
    if wait.call in ("numpy", "__array__"):
        yield Fix(Message("stay on the GPU: most numpy functions have a torch equivalent; register constants as buffers"))
    else:
        yield Fix(Message("use torch.where, a mask or a fixed number of steps instead of the value"))
    yield Fix(Message("keep a .detach() of it, and read the value once after the step"), confidence="choice")


def _where(draft: Draft, statement: ast.stmt, wait: Wait) -> None:
    """`if c: x = a` becomes `x = torch.where(c, a, x)`, and `x = a if c else b` becomes `x = torch.where(c, a, b)`."""
    if isinstance(statement, ast.If):
        _replace_branch(draft, statement, wait)
        return
    text = draft.code.text
    for node in draft.code.parts(statement):
        if isinstance(node, ast.IfExp):
            test = _on_gpu(draft, node.test, wait)
            if test:
                draft.replace(node, f"torch.where({test}, {text(node.body)}, {text(node.orelse)})")


def _replace_branch(draft: Draft, branch: ast.If, wait: Wait) -> None:
    match branch.body, branch.orelse:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)], []:
            test = _on_gpu(draft, branch.test, wait)
            if test:
                draft.rewrite(branch, f"{name} = torch.where({test}, {draft.code.text(value)}, {name})")


def _on_gpu(draft: Draft, test: ast.expr, wait: Wait) -> str:
    """A condition without its `.item()`; "" unless it is a comparison or a call."""
    text = draft.code.text(test)
    if wait.call == "item" and wait.expression not in text:
        return ""  # the sync is in a branch, and the condition may be a plain bool
    if isinstance(test, ast.BoolOp) or not isinstance(test, ast.Compare | ast.Call):
        return ""
    if wait.call in ("item", "__bool__"):
        return text.replace(".item()", "")
    return ""
