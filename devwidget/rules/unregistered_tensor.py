"""unregistered-tensor: a tensor or module that a module holds where `.to()` cannot reach it.

Why: `Module.to` moves parameters, buffers and registered children; a tensor stored with `self.mask = ...` is none of them.
Bad: `self.mask = torch.tril(torch.ones(n, n))` in `__init__`.
Good: `self.register_buffer('mask', torch.tril(torch.ones(n, n)), persistent=False)`.
Source: the documentation of `torch.nn.Module.register_buffer`.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, right_device


@rule("unregistered-tensor", needs=("forward",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault whose stray tensor a module keeps unregistered."""
    for fault in trace.faults:
        for stray in fault.operands if fault.what in ("operands", "untrained") else ():
            held = stray.held
            if stray.stray and held is not None and held.how in ("attribute", "class attribute"):
                yield _finding(fault, stray, held)
                break


def _finding(fault: Fault, stray: Operand, held: Held) -> Finding:
    path = f"{held.module}.{held.name}".strip(".")
    return Finding(
        kind="unregistered-tensor",
        severity="error",
        module=fault.module,
        headline=f"`{path}` stayed on {stray.device} when the model went to {fault.target}"
        if fault.what == "operands"
        else f"`{path}` gets gradients, and no optimizer trains it",
        why="`Module.to` and `parameters()` reach parameters, buffers and registered modules; this is none of them",
        fault=fault.site,
        birth=_birth(stray, held),
        fixes=confirmed(_fixes(fault, stray, held), fault),
        notes=(f"`{held.owner_class}` keeps it as a plain {held.how}, `{held.name}`",),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _birth(stray: Operand, held: Held) -> Site | None:
    """Where the attribute got its value; if that was handed in ready-made, or is in an object, where the tensor was made."""
    if held.assigned is None or "." in held.name or _repairs.hands_on(held.assigned.text):
        return stray.birth or held.assigned
    return held.assigned


def _flat(name: str) -> str:
    """`grid.centres` -> `grid_centres`, because the name of a buffer holds no dots."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")


def _fixes(fault: Fault, stray: Operand, held: Held) -> Iterator[Fix]:
    attribute = held.name.split("[")[0].split(".")[0]
    statement = held.assigned.text if held.assigned is not None else ""
    if held.note:
        code = _repairs.as_module_list(statement, attribute) or f"self.{attribute} = nn.ModuleList(self.{attribute})"
        yield Fix("register the modules", code, "sure")
    elif "." in held.name:
        code = f"self.register_buffer({_flat(held.name)!r}, self.{held.name}, persistent=False)"
        yield Fix(f"register the tensor as a buffer, and build `{attribute}` from it in forward", code, "likely")
    elif "[" in held.name:
        loop = f"for index, tensor in enumerate(self.{attribute}):\n    self.register_buffer(f'{attribute}_{{index}}', tensor)"
        yield Fix("register each tensor, as a buffer or in an nn.ParameterList", loop)
    else:
        code = _repairs.as_buffer(statement, attribute) or f"self.register_buffer({attribute!r}, ..., persistent=False)"
        yield Fix(f"register it as a buffer in `{held.assigned.function if held.assigned else '__init__'}`", code, "sure")
    if stray.expression and fault.what == "operands":
        moved = f"{stray.expression}.to({right_device(fault)})"
        yield Fix("or move it at every use, at the price of a copy each time", moved, "choice")
