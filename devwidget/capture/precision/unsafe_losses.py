"""Losses that autocast refuses, because their gradient may not fit into float16."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.precision.autocast_regions import region_around
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import node_of
from devwidget.records.errors import message
from devwidget.records.fault_details import UnsafeLoss

_MOST_NODES = 4
"""Nodes between a sigmoid and the loss, such as a view or a cast."""


def handle_failure(call: FailedCall) -> Any:
    """Repair by computing the loss in float32 outside of autocast."""
    tensors = [tensor for tensor in call.tensors() if tensor.is_floating_point()]
    if not tensors or "unsafe to autocast" not in message(call.error):
        return NOT_OURS
    with torch.autocast(tensors[0].device.type, enabled=False):
        out = call.again_changing(tensors, lambda tensor: tensor.float())
    detail = UnsafeLoss(_is_sigmoid(tensors[0]), region_around(user_frames(call.frame)))
    call.report("dtype", tensors[:1], tensors[0].device, out, detail)
    return out


def _is_sigmoid(tensor: torch.Tensor) -> bool:
    """Return whether the graph of a tensor ends in a sigmoid, apart from views and casts."""
    node = node_of(tensor)
    for _ in range(_MOST_NODES):
        if node is None or len(node.next_functions) != 1:
            return False
        if node.name().startswith("Sigmoid"):
            return True
        node = node.next_functions[0][0]
    return False
