"""mixed-dtensor: an operator got a plain tensor and a DTensor.

Why: an op on a DTensor needs to know how each of its tensors is placed on the mesh; a plain tensor has no placement.
Bad: `linear(x)` with sharded parameters and a plain `x`.
Good: `linear(distribute_tensor(x, mesh))`, which replicates it, or `x.full_tensor()` of a DTensor.
Source: https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.fault_details import HookBypassed
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.moves_where_used import cast_where_used
from devwidget.rules.edits.source_file import uses_name
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import name_of, strays_in


@rule(
    "mixed-dtensor",
    "error",
    needs=("DTensor",),
    why=Message("an op on a DTensor needs all its tensors as DTensors; PyTorch does not convert them"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each call that mixes them."""
    for fault, stray in strays_in(trace, "dtensor"):
        yield Found(
            fault,
            Message("`{call}` got a torch.Tensor and a DTensor", call=fault.call),
            birth=stray.birth,
            fixes=_list_fixes(fault, stray),
            notes=_list_notes(fault),
        )


def _list_distributed(fault: Fault) -> list[Operand]:
    """Return the DTensors; torch replicates a plain tensor of one number itself."""
    with_shape = [operand for operand in fault.operands if operand.shape]
    return [operand for operand in with_shape if not operand.stray]


def _list_notes(fault: Fault) -> Iterator[Message]:
    plain = [name_of(fault, operand) for operand in fault.operands if operand.stray]
    distributed = [name_of(fault, operand) for operand in _list_distributed(fault)]
    yield Message("torch.Tensor: {plain}; DTensor: {distributed}", plain=in_row(plain), distributed=in_row(distributed))
    if isinstance(fault.detail, HookBypassed):
        facts = {"owner": fault.detail.owner, "method": fault.detail.method}
        yield Message("`fully_shard` gathers parameters when you call `{owner}`; `{method}` ran without its hooks", **facts)


def _list_fixes(fault: Fault, stray: Operand) -> Iterator[Fix | None]:
    if isinstance(fault.detail, HookBypassed):
        method = fault.detail.method
        words = Message("call the module itself, or have `fully_shard` gather its parameters for `{method}` too", method=method)
        yield Fix(words, f"register_fsdp_forward_method({fault.model_name or 'model'}, {method!r})", "choice")
        return
    distributed = _list_distributed(fault)
    names = [operand.expression for operand in distributed if operand.expression]
    mesh = f"{names[0]}.device_mesh" if names else "mesh"
    # Only a leaf can be distributed; `from_local` passes the gradient of any tensor on. Both replicate without placements.
    function = "DTensor.from_local" if stray.requires_grad else "distribute_tensor"
    replicate = Message("replicate it on the mesh, if each rank has the same values")
    if names:
        yield mended(fault.site, replicate, _convert, stray, function, mesh, confidence="choice")
    name = stray.expression or stray.source or "x"
    yield Fix(replicate, f"{function}({name}, {mesh})", "choice")
    if len(distributed) == 1:
        yield cast_where_used(fault, distributed, ".full_tensor()", Message("gather the DTensor on each rank"))


def _convert(draft: Draft, statement: ast.stmt, stray: Operand, function: str, mesh: str) -> None:
    """Convert a tensor on the failing line, in a file that imports what converts it."""
    uses = draft.code.alike(statement, stray.expression or stray.source)
    if len(uses) == 1 and uses_name(draft.code, function.partition(".")[0]):
        draft.replace(uses[0], f"{function}({draft.code.text(uses[0])}, {mesh})")
