"""What the parts of memory are called, in bars, curves and tables alike."""

from __future__ import annotations

from devwidget.language.speaking import said
from devwidget.records.schema.message import Message

_NAMES = {
    "attributes": Message("plain attributes"),
    "optimizer": Message("optimizer state"),
    "inputs": Message("batch"),
    "gathered": Message("gathered outputs"),
    "other": Message("temporaries"),
    "foreign": Message("other models and tensors"),
    "outside": Message("tensors outside this model"),
    "running": Message("activations and other new tensors"),
    "others": Message("context, other processes"),
    "parameters": Message("parameters"),
    "buffers": Message("buffers"),
    "gradients": Message("gradients"),
    "activations": Message("activations"),
    "cache": Message("cache"),
    "free": Message("free"),
}


def part_name(part: str) -> str:
    """The word for a part of memory."""
    return said(_NAMES.get(part, part))
