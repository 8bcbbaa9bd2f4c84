"""Every storage that a rank holds while its step runs, and what the bytes are for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from devwidget.memory.accounting import block_bytes
from devwidget.planning.parallel.torch_internals import TorchDispatchMode, local_of, tree_leaves
from devwidget.records.device import DeviceId

_GPU = DeviceId("cuda", 0)
_OF_FSDP = "fsdp"
"""Operators of this namespace fill the buffers of FSDP2's collectives."""


@dataclass
class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator below DTensor, and with it every storage; sizes are those of CUDA's blocks.

    Attributes:
        held: bytes, now.
        peak: the most since `begin`.
        gathered: bytes of parameters that are gathered, and buffers of that.
        most_gathered: the most of these.
        of_buckets: in which DDP has the gradients that it adds up over the ranks.
        at_peak: called whenever `peak` rises.
    """

    held: int = 0
    peak: int = 0
    gathered: int = 0
    most_gathered: int = 0
    at_peak: Callable[[], None] = lambda: None
    live: dict[int, int] = field(default_factory=dict)
    of_gathering: set[int] = field(default_factory=set)
    of_buckets: set[int] = field(default_factory=set)
    kept: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Storages:
        resize, storages = torch.UntypedStorage.resize_, self

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            """FSDP2 empties and fills what it gathers by this; nothing else in a step does."""
            result = resize(storage, size)
            storages._add(storage)
            storages._is_gathered(storage)
            storages._measure(storage)
            return result

        self._resize = resize
        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]  # this process ends after the step
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc_info: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exc_info)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again for the local tensors
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        if func.namespace == _OF_FSDP:
            for tensor in tree_leaves((result, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    self._is_gathered(tensor.untyped_storage())
        return result

    def keeps(self, tensors: Iterable[torch.Tensor]) -> None:
        """These are there before the step and stay."""
        storages = [local_of(tensor).untyped_storage() for tensor in tensors]
        for storage in storages:
            self._add(storage)
        self.kept = frozenset(storage._cdata for storage in storages)

    def begin(self) -> None:
        """A part of the step begins, which may hold most right then."""
        self.peak = self.held
        self.at_peak()

    def sizes(self, tensors: Iterable[torch.Tensor], known: set[int]) -> int:
        """Bytes of these tensors, each storage once and without those that are `known`, which they are from now on."""
        total = 0
        for tensor in tensors:
            key = local_of(tensor).untyped_storage()._cdata
            if key not in known:
                known.add(key)
                total += self.live.get(key, 0)
        return total

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.live:
            self.live[key] = 0
            weakref.finalize(storage, self._gone, key).atexit = False
            self._measure(storage)

    def _measure(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, block_bytes(storage.nbytes(), _GPU)
        self._change(key, size - self.live[key])
        if self.held > self.peak:
            self.peak = self.held
            self.at_peak()

    def _change(self, key: int, more: int) -> None:
        self.live[key] += more
        self.held += more
        if key in self.of_gathering:
            self.gathered += more
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _is_gathered(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.of_gathering and key in self.live and key not in self.kept:
            self.of_gathering.add(key)
            self.gathered += self.live[key]
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _gone(self, key: int) -> None:
        self._change(key, -self.live[key])
        del self.live[key]
        self.of_gathering.discard(key)
        self.of_buckets.discard(key)
