"""meta-tensor: a tensor without data is moved or used in a computation.

Why: a meta tensor has a shape and a dtype; its data was never allocated or loaded.
Bad: a model built under `torch.device('meta')` and moved with `.to('cuda')`.
Good: `model.to_empty(device='cuda')`, then `model.load_state_dict(checkpoint)`.
Source: https://docs.pytorch.org/docs/stable/meta.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.device import CUDA
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.call_edits import replace_only_literal
from devwidget.rules.edits.draft import mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import kept_name_of, strays_in


@rule(
    "meta-tensor",
    "error",
    needs=("operations",),
    why=Message("a meta tensor has a shape and a dtype, but no data"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each use of a tensor without data."""
    for fault, stray in strays_in(trace, "meta"):
        facts = {"name": kept_name_of(fault, stray), "call": fault.call}
        yield Found(
            fault,
            Message("{name} is on the meta device and has no data for `{call}`", **facts),
            birth=stray.birth,
            fixes=_list_fixes(fault, stray),
            operands=(operand for operand in fault.operands if operand.stray),
        )


def _list_fixes(fault: Fault, stray: Operand) -> Iterator[Fix | None]:
    model = fault.model_name or "model"
    known = fault.target is not None and (fault.target.is_accelerator or any(not o.stray for o in fault.operands))
    device = str(fault.target) if known else CUDA.type
    for site in (stray.birth, fault.site):
        yield mended(site, Message("build it on a device with memory"), replace_only_literal, "meta", repr(device))
    yield Fix(
        Message("allocate memory with to_empty, then call load_state_dict or initialise the weights"),
        f"{model}.to_empty(device={device!r})\n{model}.load_state_dict(checkpoint)",
        "choice",
    )
    taken = f"{model}.load_state_dict(checkpoint, assign=True)"
    yield Fix(Message("load with assign=True, which replaces the meta tensors with those in the checkpoint"), taken, "choice")
    yield Fix(Message("build the module without torch.device('meta')"), confidence="choice")
