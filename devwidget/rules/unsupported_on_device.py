"""unsupported-on-device: the operator has no kernel for this device, or none for this dtype on it.

Why: kernels are written device by device and dtype by dtype.
Bad: `torch.histogram(cuda_tensor)`; `torch.linalg.inv(half_tensor)`.
Good: `torch.histc(cuda_tensor)`; `torch.linalg.inv(half_tensor.float())`.
Source: dispatch keys in PyTorch's native_functions.yaml, 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, first_stray

_ALTERNATIVES = {
    "histogram": "torch.histc, or torch.bucketize and torch.bincount, have kernels for GPUs",
    "histogramdd": "torch.bucketize and torch.bincount have kernels for GPUs",
}


@rule("unsupported-on-device", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call without a kernel."""
    for fault in trace.faults:
        if fault.what == "kernel":
            yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    dtype = dict(fault.facts).get("dtype", "")
    of = f"{dtype} on {fault.target}" if dtype else str(fault.target)
    return Finding(
        kind="unsupported-on-device",
        severity="error",
        module=fault.module,
        headline=f"`{fault.call}` has no kernel for {of}",
        why="kernels are written device by device and dtype by dtype",
        fault=fault.site,
        fixes=_confirmed(fault, dtype),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _confirmed(fault: Fault, dtype: str) -> tuple[Fix, ...]:
    """A healed run goes to the CPU, and casts at once where a dtype is at fault: neither repair by itself."""
    fixes = _fixes(fault, dtype)
    return tuple(fixes) if dtype else confirmed(fixes, fault)


def _fixes(fault: Fault, dtype: str) -> Iterator[Fix]:
    stray = first_stray(fault)
    name = stray.expression if stray is not None else ""
    text = fault.site.text if fault.site is not None else ""
    call = _repairs.first_argument(fault.expression)
    subject = call or name or "x"
    if dtype:
        code = _repairs.replaced(text, subject, f"{subject}.float()")
        yield Fix("compute in float32 and cast back", code or f"{subject}.float()")
    code = _repairs.replaced(text, subject, f"{subject}.cpu()")
    yield Fix(f"run it on the CPU, and bring the result back with .to({subject}.device)", code or f"{subject}.cpu()")
    if fault.call in _ALTERNATIVES:
        yield Fix(_ALTERNATIVES[fault.call], "", "choice")
