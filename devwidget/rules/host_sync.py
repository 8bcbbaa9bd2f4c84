"""host-sync: the host waits for a GPU value during forward or loss.

Why: a GPU works through a queue; `.item()` and its kin empty it, because Python needs the number now.
Bad: `if loss.item() > 1: ...` inside the loss.
Good: `torch.where(loss > 1, ...)`; read values once, after the step.
Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Trace, Wait
from devwidget.rules._registry import rule


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
        headline=f"the host waits for {wait.device} at `{_shown(wait)}`, {wait.count} {'time' if wait.count == 1 else 'times'}",
        why="a GPU works through a queue, and Python can have the value only when the queue is empty",
        fault=wait.site,
        fixes=tuple(_fixes(wait)),
    )


def _shown(wait: Wait) -> str:
    return wait.expression.replace("\n", " ") or wait.call.strip("_")


def _fixes(wait: Wait) -> Iterator[Fix]:
    if wait.call in ("numpy", "__array__"):
        yield Fix(
            "stay on the GPU: most of numpy has a torch operation of the same name (torch.hann_window for np.hanning); "
            "constants belong in a buffer, register_buffer",
            "",
            "likely",
        )
    elif wait.call == "__bool__":
        yield Fix("decide on the GPU with torch.where or a mask, without an `if` on a tensor", "", "likely")
    else:
        yield Fix("decide on the GPU, with torch.where, a mask or a fixed number of steps, without .item()", "", "likely")
    yield Fix("or read the value once, after the step, from .detach()", "", "choice")
