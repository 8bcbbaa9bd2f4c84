"""DeviceId: the name of one device, such as `cuda:1`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from devwidget.records.schema.bounds import Size

ACCELERATORS = ("cuda", "xpu", "mps", "hpu")
"""Torch's types of devices with memory of their own, as programs and messages name them."""

DEVICE_NAME = re.compile(rf"\b(?:{'|'.join(ACCELERATORS)}):\d+|\bcpu\b")
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
        return self.kind not in ("cpu", "meta")

    def __lt__(self, other: DeviceId) -> bool:
        """By type and ordinal, one without an ordinal first."""
        return (self.kind, -1 if self.index is None else self.index) < (other.kind, -1 if other.index is None else other.index)

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> DeviceId:
    kind, colon, index = text.partition(":")
    if not kind or (colon and not index.isdigit()):
        raise ValueError(f"{text!r} is no device name; expected a form such as 'cpu', 'cuda:0' or 'mps:0'")
    return DeviceId(kind, int(index) if colon else None)


CPU = DeviceId("cpu")
