"""Devices as programs and messages name them: one, such as `cuda:1`, and the kinds of accelerators as data."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from devwidget.records.schema.fields import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorKind:
    """What tells one kind from another.

    Attributes:
        type: torch's device type, `cuda`: also the names of the module `torch.cuda`, of `Tensor.cuda` and `Tensor.is_cuda`.
        visible_variable: the environment variable that hides and renumbers devices; "" if there is none.
        block_bytes: every allocation is a multiple of this; 1 where that is not known.
    """

    type: str
    visible_variable: str = ""
    block_bytes: int = 1


CUDA = AcceleratorKind(type="cuda", visible_variable="CUDA_VISIBLE_DEVICES", block_bytes=512)
"""Source: `kMinBlockSize` in PyTorch's caching allocator."""

SIMULATE_VARIABLE = "DEVWIDGET_SIMULATE"
"""The environment variable that says which virtual GPUs a process has."""

KINDS = {
    kind.type: kind
    for kind in (
        CUDA,
        AcceleratorKind(type="xpu", visible_variable="ZE_AFFINITY_MASK", block_bytes=512),
        AcceleratorKind(type="mps"),
        AcceleratorKind(type="hpu", visible_variable="HABANA_VISIBLE_DEVICES"),
    )
}
"""Torch's types of devices with memory of their own."""

PLACING_METHODS = frozenset({"to", "cpu", *KINDS})
"""Methods of a tensor and of a module that put it on a device."""

HOST_CONSTRUCTORS = frozenset(
    f"{kind}Tensor" for kind in ("", "Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
)
"""Torch's constructors of old, which take no device and make a tensor on the host; `torch.cuda` has namesakes."""

CURRENT_SETTERS = frozenset({"set_device", "set_device_index"})
"""Functions of torch that make a device the current one, by its number."""


def has_own_memory(device_type: str) -> bool:
    """True for a type of accelerators; False for cpu and meta."""
    return device_type not in ("cpu", "meta")


DEVICE_NAME = re.compile(rf"\b(?:{'|'.join(KINDS)}):\d+|\bcpu\b")
"""One device in a line of code or in the message of an exception."""


@dataclass(frozen=True, slots=True)
class DeviceId:
    """One device.

    Attributes:
        kind: torch's device type: `cpu`, `cuda`, `mps`, `xpu`, `meta`, ...
        index: the ordinal among the *visible* devices of that kind; None where torch gives none (cpu, meta).
    """

    kind: str
    index: Size | None = None

    @classmethod
    def parse(cls, text: str) -> DeviceId:
        """`"cuda:1"` -> `DeviceId("cuda", 1)`.

        Raises:
            ValueError: if the text is empty or its ordinal is not a number of zero or more.
        """
        return _parse(text)

    @property
    def is_accelerator(self) -> bool:
        """True for every device with memory of its own; False for cpu and meta."""
        return has_own_memory(self.kind)

    def __lt__(self, other: DeviceId) -> bool:
        """By type and ordinal, one without an ordinal first."""
        return (self.kind, -1 if self.index is None else self.index) < (other.kind, -1 if other.index is None else other.index)

    def __str__(self) -> str:
        if self.index is None:
            return self.kind
        return f"{self.kind}:{self.index}"


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> DeviceId:
    kind, colon, index = text.partition(":")
    if not kind or (colon and not index.isdigit()):
        raise ValueError(f"{text!r} is no device name; expected a form such as 'cpu', 'cuda:0' or 'mps:0'")
    return DeviceId(kind, int(index) if colon else None)


CPU = DeviceId("cpu")
