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


@rule("wrong-dtype", needs=("operations",), loses_to=("unassigned-move",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault of floating types."""
    for fault, stray in strays_in(trace, "dtype"):
        yield _finding(fault, stray)
    for fault, stray in strays_in(trace, "promotion"):  # after the errors, so that one with the same birth speaks for both
        yield _promotion(fault, stray)


def _promotion(fault: Fault, stray: Operand) -> Finding:
    name = stray.expression or stray.argument
    return Finding(
        kind="wrong-dtype",
        severity="warning",
        module=fault.module,
        headline=f"`{name}` is float64 and makes the result of `{fault.call}` float64",
        why="element-wise operators promote to the wider type, which is slow on most GPUs and spreads",
        fault=fault.site,
        birth=stray.birth,
        fixes=tuple(_fixes(fault, stray)),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _constant(fault: Fault, stray: Operand) -> Finding:
    limits = f"torch.finfo({stray.expression or 'x'}.dtype)"
    return Finding(
        kind="wrong-dtype",
        severity="error",
        module=fault.module,
        headline=f"`{fault.call}` was given a number that {stray.dtype} cannot hold",
        why="half precision ends at 65504; masks written for float32 use larger numbers",
        fault=fault.site,
        birth=fault.site,
        fixes=(Fix("take the limit of the dtype, or float('-inf')", f"{limits}.min", "sure"),),
        operands=described([stray]),
        explains=(fault.number,),
    )


def _finding(fault: Fault, stray: Operand) -> Finding:
    if dict(fault.facts).get("problem") == "constant":
        return _constant(fault, stray)
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
