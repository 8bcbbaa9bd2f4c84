"""What the parts of memory are called, in bars, curves and tables alike."""

from __future__ import annotations

_NAMES = {
    "attributes": "plain attributes",
    "optimizer": "optimizer state",
    "inputs": "batch",
    "gathered": "gathered outputs",
    "other": "temporaries",
    "foreign": "other models and tensors",
    "running": "activations and other tensors",
    "others": "context, other processes",
}


def part_name(part: str) -> str:
    """The word for a part of memory."""
    return _NAMES.get(part, part)
