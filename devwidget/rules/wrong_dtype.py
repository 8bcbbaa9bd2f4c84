"""wrong-dtype: floating types that an operator does not mix.

Why: matrix products, convolutions and recurrent layers want one floating type; element-wise operators promote instead.
Bad: `model(torch.from_numpy(array))` with a float64 array and a float32 model.
Good: `model(torch.from_numpy(array).float())`.
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html (type promotion).
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, strays_in


@rule("wrong-dtype", loses_to=("unassigned-move",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault of floating types."""
    for fault, stray in strays_in(trace, "dtype"):
        yield _finding(fault, stray)


def _finding(fault: Fault, stray: Operand) -> Finding:
    types = " and ".join(sorted({o.dtype for o in fault.operands if "float" in o.dtype}))
    return Finding(
        kind="wrong-dtype",
        severity="error",
        module=fault.module,
        headline=f"`{fault.call}` was given {types}",
        why="this operator wants one floating type and casts nothing for you",
        fault=fault.site,
        birth=stray.birth,
        fixes=confirmed(_fixes(fault, stray), fault),
        notes=(f"`{stray.expression or stray.argument}` is {stray.dtype}, the others are {dict(fault.facts)['wanted']}",),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _fixes(fault: Fault, stray: Operand) -> Iterator[Fix]:
    wanted = dict(fault.facts)["wanted"]
    cast = ".float()" if wanted == "float32" else f".to(torch.{wanted})"
    name = stray.expression
    if name.isidentifier():
        yield Fix(f"cast it to {wanted} before it is used", f"{name} = {name}{cast}")
    if stray.birth is not None:
        code = _repairs.cast_value(stray.birth.text, cast)
        if code:
            yield Fix(f"make it {wanted}", code)
    if not name.isidentifier():
        code = _repairs.replaced(fault.site.text, name, f"{name}{cast}") if fault.site is not None and name else ""
        yield Fix(f"cast it to {wanted} where it is used", code or f"{name or 'x'}{cast}")
