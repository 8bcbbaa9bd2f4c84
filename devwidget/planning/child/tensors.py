"""A tensor of another process: its shape, its place and what it shares; values only of small ones that are no parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from devwidget.capture.gradients_off import no_gradients
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.tensors import device_of, is_parameter
from devwidget.planning.child.torch_internals import conjugate_view, negative_view
from devwidget.simulator.torch_internals import DisableTorchFunction
from devwidget.simulator.without_values.known_values import MOST_BYTES

PLACE = "_devwidget_sent_from"
"""Where a tensor that was sent is in the process that it comes from."""


@dataclass(eq=False)
class SentStorage:
    """The memory of tensors.

    Attributes:
        nbytes: its size.
        values: what it holds; None if nobody knows, or needs to.
    """

    nbytes: int
    values: bytes | None

    @property
    def storage(self) -> torch.UntypedStorage:
        """The same memory here, on meta if its values are unknown; one for all who ask."""
        if "_storage" not in vars(self):
            vars(self)["_storage"] = self._made()
        found: torch.UntypedStorage = vars(self)["_storage"]
        return found

    def _made(self) -> torch.UntypedStorage:
        if self.values is None:
            return torch.UntypedStorage(self.nbytes, device="meta")  # type: ignore[no-untyped-call]
        if not self.values:
            return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
        return torch.frombuffer(bytearray(self.values), dtype=torch.uint8).untyped_storage()


class Storages:
    """The storages of one letter, each sent once."""

    def __init__(self) -> None:
        self._sent: dict[int, SentStorage] = {}

    def of(self, tensor: torch.Tensor) -> SentStorage:
        """What is sent in place of the memory of a tensor."""
        with hide_from_modes(), DisableTorchFunction(), no_gradients():
            storage = tensor.untyped_storage()
            if storage._cdata not in self._sent:
                is_known = not (tensor.requires_grad or is_parameter(tensor)) and storage.nbytes() <= MOST_BYTES
                self._sent[storage._cdata] = SentStorage(storage.nbytes(), _read(storage) if is_known else None)
            return self._sent[storage._cdata]


def _read(storage: torch.UntypedStorage) -> bytes | None:
    """The bytes of a storage on any device; without values those that are known."""
    kept = getattr(storage, "_devwidget_values", None)
    source = storage if kept is None else kept
    if source.device.type == "meta":
        return None
    return bytes(torch.empty(0, dtype=torch.uint8).set_(source.cpu()).numpy().tobytes())


def described(tensor: torch.Tensor, storages: Storages) -> tuple[Any, ...]:
    """How to make a strided tensor again, as pickle wants it."""
    place = str(device_of(tensor))
    with hide_from_modes(), DisableTorchFunction():
        shape = tuple(tensor.size()), tensor.stride(), tensor.storage_offset()
        rest = tensor.dtype, tensor.requires_grad, type(tensor), tensor.is_conj(), tensor.is_neg()
    return made_again, (storages.of(tensor), place, *shape, *rest), dict(vars(tensor)), None, None, set_attributes


def made_again(
    sent: SentStorage, place: str, size: Any, stride: Any, offset: int,
    dtype: torch.dtype, requires_grad: bool, kind: Any, is_conj: bool, is_neg: bool,
) -> torch.Tensor:  # fmt: skip
    """A tensor that was sent."""
    made = torch.empty(0, dtype=dtype, device=sent.storage.device).set_(sent.storage, offset, size, stride)
    made = conjugate_view(made) if is_conj else made
    made = negative_view(made) if is_neg else made
    if kind is not torch.Tensor:
        made = kind(made, requires_grad) if issubclass(kind, torch.nn.Parameter) else made.as_subclass(kind)
    made.requires_grad_(requires_grad)
    setattr(made, PLACE, place)
    return made


def set_attributes(tensor: torch.Tensor, attributes: dict[str, Any]) -> None:
    """What programs have hung on a tensor."""
    tensor.__dict__.update(attributes)


def place_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor is in the process that it comes from."""
    place = vars(tensor).get(PLACE)
    return tensor.device if place is None else torch.device(place)
