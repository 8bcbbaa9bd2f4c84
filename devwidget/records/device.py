"""Devices as programs and messages name them, such as `cuda:1`, and the kinds of accelerators as data."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from devwidget.records.schema.fields import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorKind:
    """One kind of accelerators.

    Attributes:
        type: torch's device type, `cuda`: also the names of the module `torch.cuda`, of `Tensor.cuda` and `Tensor.is_cuda`.
        visible_variable: the environment variable that hides and renumbers devices; "" if there is none.
        block_bytes: every allocation is a multiple of this; 1 if unknown.
    """

    type: str
    visible_variable: str = ""
    block_bytes: int = 1


CUDA = AcceleratorKind(type="cuda", visible_variable="CUDA_VISIBLE_DEVICES", block_bytes=512)
"""Source: `kMinBlockSize` in PyTorch's caching allocator."""

SIMULATE_VARIABLE = "DEVWIDGET_SIMULATE"
"""The environment variable that defines the virtual GPUs of a process."""

KINDS = {
    kind.type: kind
    for kind in (
        CUDA,
        AcceleratorKind(type="xpu", visible_variable="ZE_AFFINITY_MASK", block_bytes=512),
        AcceleratorKind(type="mps"),
        AcceleratorKind(type="hpu", visible_variable="HABANA_VISIBLE_DEVICES"),
    )
}
"""Device types with their own memory."""

PLACING_METHODS = frozenset({"to", "cpu", *KINDS})
"""Methods of a tensor and of a module that put it on a device."""

HOST_CONSTRUCTORS = frozenset(
    f"{kind}Tensor" for kind in ("", "Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
)
"""Old tensor constructors of torch, which take no device and create a tensor on the host; `torch.cuda` has namesakes."""

CURRENT_SETTERS = frozenset({"set_device", "set_device_index"})
"""Functions of torch that make a device the current one, by its number."""


def has_own_memory(device_type: str) -> bool:
    """Return True for accelerator types; False for cpu and meta."""
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

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def parse(text: str) -> DeviceId:
        """Parse `"cuda:1"` as `DeviceId("cuda", 1)`.

        Raises:
            ValueError: if the text is empty or its ordinal is not a number of zero or more.
        """
        kind, colon, index = text.partition(":")
        if not kind or (colon and not index.isdigit()):
            raise ValueError(f"{text!r} is not a device name; expected a form such as 'cpu', 'cuda:0' or 'mps:0'")
        return DeviceId(kind, int(index) if colon else None)

    @property
    def is_accelerator(self) -> bool:
        """Return True for devices with their own memory; False for cpu and meta."""
        return has_own_memory(self.kind)

    def __lt__(self, other: DeviceId) -> bool:
        return (self.kind, -1 if self.index is None else self.index) < (other.kind, -1 if other.index is None else other.index)

    def __str__(self) -> str:
        if self.index is None:
            return self.kind
        return f"{self.kind}:{self.index}"


CPU = DeviceId("cpu")
