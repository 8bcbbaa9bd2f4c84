"""Claim: one thing that a finding says is so, as data that can be held against what was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.schema.bounds import Size
from devwidget.records.site import Site

ClaimKind = Literal[
    "given", "needed", "mixed", "made", "moved", "lies", "came", "registered", "stayed", "apart", "assigned", "discarded",
    "remained", "empty", "untrained", "shared", "copied", "typed", "cast", "promotes", "promoted", "crossed", "repeated",
    "filled",
]  # fmt: skip
"""Of the claims; `devwidget/rules/claims_checker.py` says of each what must have been seen for it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that happened, or is so.

    Attributes:
        kind: what is claimed.
        fault: number of the fault that it is about; -1 for one about a crossing.
        name: of the tensor, as the user's code writes it, or the path under which a module holds it.
        argument: the operator's word for a tensor that the code has no name for: then there is no `name`.
        call: what was called.
        by: source of the call that did it.
        device: where the tensor is.
        source: where it came from.
        target: where it is wanted, or where the others are.
        devices: those that met, or that it went through, in order.
        dtype: of the tensor.
        wanted: the dtype of the others, or of the result.
        dtypes: those that met.
        owner: class of the module that keeps it.
        how: as `Held.how`, or as `Operand.field`.
        others: paths under which modules hold the same tensor, or one that it was copied from.
        bytes: of one crossing.
        site: the line that did it.
    """

    kind: ClaimKind
    fault: int = -1
    name: str = ""
    argument: str = ""
    call: str = ""
    by: str = ""
    device: DeviceId | None = None
    source: DeviceId | None = None
    target: DeviceId | None = None
    devices: tuple[DeviceId, ...] = ()
    dtype: str = ""
    wanted: str = ""
    dtypes: tuple[str, ...] = ()
    owner: str = ""
    how: str = ""
    others: tuple[str, ...] = ()
    bytes: Size = 0
    site: Site | None = None
