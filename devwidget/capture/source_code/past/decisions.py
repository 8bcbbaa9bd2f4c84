"""Decisions: what a call said about the device or the dtype of its result."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from devwidget.capture.devices import default_device
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.source_code.past.past_calls import PastCall
from devwidget.capture.tensors import is_tensor
from devwidget.records.device import HOST_CONSTRUCTORS, PLACING_METHODS
from devwidget.records.site import Site

Aspect = Literal["device", "dtype", "object"]
"""What is asked of a value: who decided where it is, who decided its dtype, or who made it."""
ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load"}) | HOST_CONSTRUCTORS
CASTS = {"half": torch.float16, "float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16}
THEMSELVES = frozenset({*PLACING_METHODS, "eval", "train", "requires_grad_", "apply", "type", *CASTS})
"""Methods of a module that return the module."""


@dataclass(frozen=True, slots=True)
class Maker:
    """A call that decided a device, or a dtype, or made an object.

    Attributes:
        site: its statement.
        call: its source.
        op: the torch function, or the class.
        scope: what has a value there.
        device, dtype: that it was told; None where it was told none.
        dropped: a later line that asked to move its result, and kept nothing.
        is_move: it moved or cast what was there before, to wherever that is now if it is not known what it was told.
    """

    site: Site
    call: str
    op: str
    scope: Scope
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    is_move: bool = False
    dropped: Site | None = None

    def makes_on(self, device: torch.device) -> bool:
        """Whether the result of the call was there."""
        if self.is_move and self.device is None:
            return True
        told = self.device or (torch.device("cpu") if self.op in ARRIVALS else default_device())
        return told == device or (told.type == device.type and told.index is None)

    def decides(self, tensor: torch.Tensor, aspect: Aspect) -> bool:
        """Whether a tensor is as the call said."""
        return self.dtype in (None, tensor.dtype) if aspect == "dtype" else self.makes_on(tensor.device)

    def partners(self, target: torch.device) -> tuple[str, ...]:
        """Arguments of a function that has returned which were tensors on a device."""
        given = self.scope.arguments if isinstance(self.scope, PastCall) else {}
        values = ((name, self.scope.value(ast.Name(name))) for name in given)
        return tuple(name for name, value in values if is_tensor(value) and value.device == target)


def made_by_factory(node: ast.Call, name: str, scope: Scope, site: Site, aspect: Aspect) -> Maker | None:
    """What a factory decided; None for a number that may stay on the host, and where it cannot be told what it was told."""
    told = next((k.value for k in node.keywords if k.arg == aspect), None)
    if told is None and _is_scalar(node):
        return None
    device = _device(scope.value(told)) if told is not None and aspect == "device" else None
    dtype = _dtype(told, scope) if told is not None and aspect == "dtype" else None
    known = told is None or device is not None or dtype is not None
    return Maker(_place_at_call(node, site), ast.unparse(node), name, scope, device, dtype) if known else None


def decided_by_move(node: ast.Call, scope: Scope, site: Site, aspect: Aspect) -> Maker | None:
    """What `x.to(...)` or `x.half()` decided; None if it says nothing about the aspect."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    given = [*node.args, *(k.value for k in node.keywords if k.arg in ("device", "dtype", "other"))]
    dtypes = [CASTS[name]] if name in CASTS else [d for each in given if (d := _dtype(each, scope)) is not None]
    if aspect == "dtype":
        return (
            Maker(_place_at_call(node, site), ast.unparse(node), name, scope, dtype=dtypes[0], is_move=True) if dtypes else None
        )
    if aspect == "object" or name in CASTS or name == "type":
        return None
    if name != "to":  # `.cpu()`, `.cuda()`, `.cuda(1)`
        number = scope.value(node.args[0]) if node.args else None
        device = torch.device(name) if type(number) is not int else torch.device(name, number)
        return Maker(_place_at_call(node, site), ast.unparse(node), name, scope, device, is_move=True)
    others = [each for each in given if _dtype(each, scope) is None and not ast.unparse(each).endswith("dtype")]
    if not others:
        return None
    value = scope.value(others[0])
    device_told = value.device if is_tensor(value) else _device(value)
    return Maker(_place_at_call(node, site), ast.unparse(node), name, scope, device_told, is_move=True)


def _place_at_call(node: ast.Call, site: Site) -> Site:
    """The line of the call in a statement of several lines."""
    return replace(site, line=node.lineno)


def _is_scalar(node: ast.Call) -> bool:
    """`torch.tensor(2.0)`, which may stay on the host."""
    first = node.args[0] if node.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    return isinstance(number, ast.Constant) and ast.unparse(node.func).endswith("tensor")


def _device(value: Any) -> torch.device | None:
    try:
        return torch.device(value) if type(value) is str else value if isinstance(value, torch.device) else None
    except RuntimeError:  # no such device
        return None


def _dtype(node: ast.expr, scope: Scope) -> torch.dtype | None:
    value = scope.value(node)
    if value is UNKNOWN and isinstance(node, ast.Attribute):  # `torch.float16`, whatever `torch` is called there
        value = getattr(torch, node.attr, None) if ast.unparse(node.value) == "torch" else None
    return value if isinstance(value, torch.dtype) else None
