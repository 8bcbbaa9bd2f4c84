"""Memory of real CUDA devices: allocator figures, and weak references to the storages of operator results."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import read_memory
from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.tensors import tensors_in
from devwidget.records.errors import message
from devwidget.records.memory import DeviceMemory, allocated_bytes, read_refused_bytes


class _Storage(weakref.ref[Any]):
    """A followed storage. When it is freed, its block waits to be counted."""

    __slots__ = ("block",)
    block: MemoryBlock


class CudaMemory:
    """Real CUDA devices during a recording. Nothing is queried before CUDA is initialised.

    The allocator's peak is only read. It includes a peak inside an operator only if that is the highest since the program last
    reset it. The highest figure between operators is always known.
    """

    def __init__(self) -> None:
        self.count = torch.cuda.device_count()
        self._lock = threading.RLock()
        self._storages: dict[int, _Storage] = {}
        self._dead: deque[tuple[int, _Storage]] = deque()
        self._peaks: dict[int, int] = {}
        self._listener: Any = None

    def devices(self) -> tuple[DeviceMemory, ...]:
        """Return the current devices."""
        return read_memory()[: self.count]

    def allocated(self, index: int) -> int:
        """Return the bytes in use on a card. Includes a peak since the last read if the allocator reports one."""
        self._settle_freed()
        figures = torch.cuda.memory_stats_as_nested_dict(index)
        if not figures:  # CUDA is not initialised
            return 0
        peak, current = (int(figures["allocated_bytes"]["all"][name]) for name in ("peak", "current"))
        known, self._peaks[index] = self._peaks.get(index, peak), peak
        if peak > known:
            return peak
        return current

    def listen(self, listener: Any) -> Collection[MemoryBlock]:
        """Notify `listener` from now on. Blocks already in use are found on request."""
        self._listener = listener
        return ()

    def leave(self, listener: Any) -> None:
        """Stop notifying and release storages: see `State.let_go`."""
        with self._lock:
            self._listener = None
            self._storages.clear()

    def follow(self, blocks: Collection[MemoryBlock]) -> Callable[[], Collection[MemoryBlock]]:
        """Follow these blocks by new weak references; return what lists those in use."""
        with self._lock:
            entries = [(entry.block, entry()) for entry in self._storages.values() if entry.block in blocks]
        followed = [(block, weakref.ref(storage)) for block, storage in entries if storage is not None]
        return lambda: [block for block, storage in followed if storage() is not None]

    def mode(self) -> contextlib.AbstractContextManager[object]:
        """Return a mode that sees the results of operators in this thread."""
        return _Results(self)

    def blocks_of(self, tensor: torch.Tensor) -> tuple[MemoryBlock, ...]:
        """Return the block that holds a tensor; none if it is not on a card."""
        with self._lock:
            block, is_new = self._find_block(tensor)
            if block is None:
                return ()
            if is_new and self._listener is not None:
                self._listener.begin((block,))
            return (block,)

    def saw(self, result: Any) -> None:
        """Note that an operator has returned."""
        with self._lock, torch_internals.DisableTorchFunction():
            for tensor in tensors_in(result, depth=1):
                block, is_new = self._find_block(tensor)
                if block is not None and is_new and self._listener is not None:
                    self._listener.taken(block, self.allocated(block.index))

    def refused(self, error: torch.OutOfMemoryError) -> None:
        """Note that an operator ran out of memory."""
        refused = read_refused_bytes(message(error))
        if refused is not None and self._listener is not None:
            self._listener.refused(refused.gpu, refused.requested, self.allocated(refused.gpu))

    def _find_block(self, tensor: torch.Tensor) -> tuple[MemoryBlock | None, bool]:
        """Return the block of a tensor, and whether it is new; None if it is not on a card."""
        if not tensor.is_cuda or tensor.layout is not torch.strided:
            return None, False
        storage = tensor.untyped_storage()
        address = storage._cdata
        entry = self._storages.get(address)
        if entry is not None and entry() is storage:
            return entry.block, False
        entry = self._storages[address] = _Storage(storage, lambda dead: self._dead.append((address, dead)))
        entry.block = MemoryBlock(tensor.get_device(), allocated_bytes(storage.nbytes(), tensor.device.type))
        return entry.block, True

    def _settle_freed(self) -> None:
        """Count storages that were freed. They may be freed at any time, in any thread, inside the garbage collector."""
        with self._lock:
            while self._dead:
                address, entry = self._dead.popleft()
                if self._storages.get(address) is entry:
                    del self._storages[address]
                if self._listener is not None:
                    self._listener.freed(entry.block)


class _Results(DispatchMode):
    def __init__(self, memory: CudaMemory) -> None:
        self._memory = memory

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            out = redispatch(func, args, kwargs)
        except torch.OutOfMemoryError as error:
            self._memory.refused(error)
            raise
        self._memory.saw(out)
        return out
