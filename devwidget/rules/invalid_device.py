"""invalid-device: a device that does not exist on this machine.

Why: torch knows devices by type (`cuda`, `mps`, `cpu`) and by ordinal among the *visible* ones.
Bad: `model.to('gpu')`; `torch.device('cuda:2')` after `CUDA_VISIBLE_DEVICES=2,3`, which renumbers them 0 and 1.
Good: `model.to('cuda')`; `torch.device('cuda:0')`.
Source: the documentation of `torch.device`, and of CUDA_VISIBLE_DEVICES in the CUDA programming guide.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule


@rule("invalid-device", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each request of a device that is not there."""
    for fault in trace.faults:
        if fault.what == "device":
            yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    here = ", ".join(fault.available)
    ordinal = fault.requested.partition(":")[2].isdigit()
    why = "ordinals count the visible devices from 0" if ordinal else "a device string begins with a type that torch knows"
    visible = "CUDA_VISIBLE_DEVICES hides and renumbers cards: the first visible one is cuda:0"
    return Finding(
        kind="invalid-device",
        severity="error",
        module=fault.module,
        headline=f"`{fault.requested}` is no device of this machine, which has {here}",
        why=why,
        fault=fault.site,
        birth=fault.birth or fault.site,
        fixes=confirmed(_fixes(fault), fault),
        notes=(visible,) if ordinal else (),
        explains=(fault.number,),
    )


def _fixes(fault: Fault) -> Iterator[Fix]:
    right = _right_name(fault)
    site = fault.birth or fault.site
    wrong = repr(fault.requested)
    code = _repairs.replaced(site.text, wrong, repr(right)) if site is not None else ""
    yield Fix(f"ask for {right!r}", code or repr(right), "sure" if right in ("cuda", "cuda:0") else "likely")
    if right.startswith("cuda"):
        portable = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"
        yield Fix("or take the GPU only where there is one", portable, "choice")


def _right_name(fault: Fault) -> str:
    """The device that was meant: `cuda` for a wrong word, the first visible one for a wrong ordinal, cpu without GPUs."""
    first = fault.available[0]
    return "cuda" if first == "cuda:0" and ":" not in fault.requested else first
