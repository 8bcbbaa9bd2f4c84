"""Watches every storage that a rank holds while its step runs, and what its bytes are for; the buckets of DDP among them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from devwidget.capture.torch_internals import TorchDispatchMode, tree_leaves
from devwidget.distributed.holdings import local_part
from devwidget.memory import block_bytes
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

_GPU = DeviceId("cuda", 0)
# Operators of this namespace fill the buffers of FSDP2's collectives.
_OF_FSDP = "fsdp"


@dataclass
class StorageWatcher(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator below DTensor, and with it every storage; sizes are those of CUDA's blocks.

    Attributes:
        held: bytes, now.
        peak: the most since `begin_phase`.
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
        super().__init__()

    def __enter__(self) -> StorageWatcher:
        resize, storages = torch.UntypedStorage.resize_, self

        def resize_watched(storage: torch.UntypedStorage, size: int) -> Any:
            """Resize as FSDP2 does, which empties and fills what it gathers by this; nothing else in a step does."""
            result = resize(storage, size)
            storages._add_storage(storage)
            storages._mark_gathered(storage)
            storages._measure_storage(storage)
            return result

        self._resize = resize
        torch.UntypedStorage.resize_ = resize_watched  # type: ignore[method-assign, assignment]  # this process ends after the step
        super().__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exc_info)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # DTensor dispatches it, and it comes again for the local tensors.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add_storage(tensor.untyped_storage())
        if func.namespace == _OF_FSDP:
            for tensor in tree_leaves((result, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    self._mark_gathered(tensor.untyped_storage())
        return result

    def keep_tensors(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that are there before the step and stay."""
        storages = [local_part(tensor).untyped_storage() for tensor in tensors]
        for storage in storages:
            self._add_storage(storage)
        self.kept = frozenset(storage._cdata for storage in storages)

    def begin_phase(self) -> None:
        """Start the peak of a part of the step, which may hold most right at its start."""
        self.peak = self.held
        self.at_peak()

    def count_bytes(self, tensors: Iterable[torch.Tensor], known: set[int]) -> int:
        """Return the bytes of tensors, each storage once and without `known` ones, and add them to `known`."""
        total = 0
        for tensor in tensors:
            key = local_part(tensor).untyped_storage()._cdata
            if key not in known:
                known.add(key)
                total += self.live.get(key, 0)
        return total

    def _add_storage(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.live:
            self.live[key] = 0
            weakref.finalize(storage, self._forget_storage, key).atexit = False
            self._measure_storage(storage)

    def _measure_storage(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, block_bytes(storage.nbytes(), _GPU)
        self._change_size(key, size - self.live[key])
        if self.held > self.peak:
            self.peak = self.held
            self.at_peak()

    def _change_size(self, key: int, more: int) -> None:
        self.live[key] += more
        self.held += more
        if key in self.of_gathering:
            self.gathered += more
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _mark_gathered(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.of_gathering and key in self.live and key not in self.kept:
            self.of_gathering.add(key)
            self.gathered += self.live[key]
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _forget_storage(self, key: int) -> None:
        self._change_size(key, -self.live[key])
        del self.live[key]
        self.of_gathering.discard(key)
        self.of_buckets.discard(key)


_LEFT_OUT = "finished reduction in the prior iteration"
_OF_USED_PARAMETERS = "find_unused_parameters", "static_graph"
"""Options with which a reducer reads in each step which parameters took part."""


class _UnchangedReducer:
    """A reducer whose buckets stay as they were made: ranks that are not there agree on no other order of as many bytes."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        """Let torch refuse a step that has left parameters out, and refuse nothing else: next it would ask other ranks."""
        try:
            return bool(self._reducer._rebuild_buckets())
        except RuntimeError as error:
            if _LEFT_OUT in str(error):
                raise DevwidgetError(
                    Message("the step leaves out parameters, and DistributedDataParallel begins no other after it"),
                    why=Message("it waits for the gradients of all that require any"),
                    instead=Message("parameter.requires_grad_(False) for those that no loss depends on"),
                ) from None
            return False

    def _set_static_graph(self) -> None:
        """Refuse what `DistributedDataParallel._set_static_graph` sets after the model was wrapped."""
        raise _refuse_option("static_graph=True")


def _refuse_option(option: str) -> DevwidgetError:
    return DevwidgetError(
        Message("DistributedDataParallel with `{option}` cannot be planned", option=option),
        why=Message("it asks all ranks which parameters a step has used, and those of a plan have no values to tell"),
        instead=Message("plan without it, with a model of which each step uses every parameter"),
    )


def watch_replicas(fakes: Any, storages: StorageWatcher) -> None:
    """Make every DDP of fake tensors from now on, and note its buckets; this process ends after the step."""
    made: Any = DistributedDataParallel.__init__

    def init_replica(self: Any, *args: Any, **kwargs: Any) -> None:
        before = set(storages.live)
        with fakes, storages:
            # Else it compares the shapes of all ranks by their values.
            made(self, *args, **{**kwargs, "init_sync": False})
        for option in _OF_USED_PARAMETERS:
            if getattr(self, option):
                raise _refuse_option(f"{option}=True")
        storages.of_buckets |= storages.live.keys() - before
        self.register_comm_hook(
            None, lambda _, bucket: _make_done_future(bucket.buffer())
        )  # the sum would be written into the bucket
        self.reducer = _UnchangedReducer(self.reducer)

    DistributedDataParallel.__init__ = init_replica  # type: ignore[method-assign]


def _make_done_future(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    result.set_result(tensor)
    return result
