"""Live tensors -> TensorFacts, with storages numbered once for a whole snapshot."""

from __future__ import annotations

import torch

from devwidget.capture.odd_tensors import Reading, is_odd, read_odd
from devwidget.capture.quick_records import quick
from devwidget.records.device import DeviceId
from devwidget.records.tensor import Role, TensorFacts

_facts = quick(TensorFacts)
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class TensorReader:
    """Reads the tensors of one snapshot. It holds the first tensor of each storage, so that no address is used twice."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._first: list[tuple[torch.Tensor | None, str, str]] = []
        self._shapes: dict[tuple[int, tuple[int, ...], int | torch.SymInt], str] = {}
        self._devices: dict[torch.device, DeviceId] = {}
        self._dtypes: dict[torch.dtype, str] = {}

    def read(self, path: str, name: str, role: Role, tensor: torch.Tensor, note: str = "") -> TensorFacts:
        """Facts of one tensor that the module at `path` calls `name`."""
        if type(tensor) not in _PLAIN and is_odd(tensor):
            return self._read_odd(name, role, tensor, note)
        try:
            storage = tensor.untyped_storage()
            shape = tuple(tensor.shape)
            size, storage_size, key = tensor.nbytes, storage.nbytes(), storage._cdata
        except RuntimeError:  # sparse, mkldnn and nested tensors have no storage
            return self._read_odd(name, role, tensor, note)
        device = self._devices.get(tensor.device) or self.device(tensor.device)
        if device.kind == "meta":
            note = join(note, f"{size} bytes once it is loaded")
            size = storage_size = 0
        tied, number = "", self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._first)
            self._first.append((tensor, path, name))
        else:
            tied = self._tied(number, path, name, shape, tensor.storage_offset())
        grad_bytes, grad_device = 0, None
        if tensor.is_leaf:  # a warning is raised on reading the grad of others
            if tensor.grad is not None:
                grad_bytes, grad_device = self._grad(tensor.grad)
        elif role == "attribute" and not note:
            note = "computed with autograd"
        return _facts(
            name, role, shape, self._dtypes.get(tensor.dtype) or self.dtype(tensor.dtype), device, size, number, storage_size,
            tensor.requires_grad, grad_bytes, grad_device, tied, note,
        )  # fmt: skip

    def device(self, device: torch.device) -> DeviceId:
        """The name of a torch device."""
        return self._devices.setdefault(device, DeviceId(device.type, device.index if device.type != "cpu" else None))

    def dtype(self, dtype: torch.dtype) -> str:
        """torch's word for a dtype, without the prefix."""
        return self._dtypes.setdefault(dtype, str(dtype).removeprefix("torch."))

    def new_storage(self) -> int:
        """A number for bytes that have no storage of their own to be told apart by."""
        self._first.append((None, "", ""))
        return len(self._first) - 1

    def _tied(self, number: int, path: str, name: str, shape: tuple[int, ...], offset: int | torch.SymInt) -> str:
        """Path of the tensor met first with this storage, shape and offset; slices of one storage are not tied."""
        first, first_path, first_name = self._first[number]
        if first is not None and not is_odd(first):
            key = (number, tuple(first.shape), first.storage_offset())
            self._shapes.setdefault(key, f"{first_path}.{first_name}" if first_path else first_name)
        own = f"{path}.{name}" if path else name
        met = self._shapes.setdefault((number, shape, offset), own)
        return "" if met == own else met

    def _grad(self, grad: torch.Tensor) -> tuple[int, DeviceId]:
        device = self.device(grad.device)
        if device.kind == "meta":
            return 0, device
        try:
            return (read_odd(grad).bytes if is_odd(grad) else grad.nbytes), device
        except RuntimeError:
            return read_odd(grad).bytes, device

    def _read_odd(self, name: str, role: Role, tensor: torch.Tensor, note: str) -> TensorFacts:
        reading = read_odd(tensor)
        grad = tensor.grad if reading.shape is not None and tensor.is_leaf else None
        grad_bytes, grad_device = (0, None) if grad is None else self._grad(grad)
        device = self.device(tensor.device)
        on_meta = device.kind == "meta"
        return TensorFacts(
            name=name,
            role=role,
            shape=reading.shape,
            dtype=self.dtype(tensor.dtype),
            device=device,
            bytes=0 if on_meta else reading.bytes,
            storage=self._storage_of(reading),
            storage_bytes=0 if on_meta else reading.storage_bytes,
            requires_grad=tensor.requires_grad,
            grad_bytes=grad_bytes,
            grad_device=grad_device,
            note=join(note, reading.note),
        )

    def _storage_of(self, reading: Reading) -> int:
        if reading.storage_key is None:
            return self.new_storage()
        number = self._numbers.get(reading.storage_key)
        if number is None:
            number = self._numbers[reading.storage_key] = self.new_storage()
            self._first[number] = (reading.holder, "", "")
        return number


def join(*notes: str) -> str:
    """Notes as one; empty ones are left out."""
    return "; ".join(note for note in notes if note)
