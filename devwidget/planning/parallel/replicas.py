"""DistributedDataParallel over ranks that are not there: what would read their values is left out, its buckets are torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from devwidget.planning.parallel.storages import Storages
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

_LEFT_OUT = "finished reduction in the prior iteration"
_OF_USED_PARAMETERS = "find_unused_parameters", "static_graph"
"""Options with which a reducer reads in each step which parameters took part."""


class _Unchanged:
    """A reducer whose buckets stay as they were made: ranks that are not there agree on no other order of as many bytes."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        """What it refuses first, a step that has left parameters out, is refused here too; then it would ask the others."""
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
        """Of `DistributedDataParallel._set_static_graph`, which sets it after the model was wrapped."""
        raise _not_planned("static_graph=True")


def _not_planned(option: str) -> DevwidgetError:
    return DevwidgetError(
        Message("DistributedDataParallel with `{option}` cannot be planned", option=option),
        why=Message("it asks all ranks which parameters a step has used, and those of a plan have no values to tell"),
        instead=Message("plan without it, with a model of which each step uses every parameter"),
    )


def watch_replicas(fakes: Any, storages: Storages) -> None:
    """From now on every DDP is made of fake tensors, and its buckets are known; this process ends after the step."""
    made: Any = DistributedDataParallel.__init__

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        before = set(storages.live)
        with fakes, storages:
            made(self, *args, **{**kwargs, "init_sync": False})  # else it compares the shapes of all ranks by their values
        for option in _OF_USED_PARAMETERS:
            if getattr(self, option):
                raise _not_planned(f"{option}=True")
        storages.of_buckets |= storages.live.keys() - before
        self.register_comm_hook(None, lambda _, bucket: _at_once(bucket.buffer()))  # the sum would be written into the bucket
        self.reducer = _Unchanged(self.reducer)

    DistributedDataParallel.__init__ = begin  # type: ignore[method-assign]


def _at_once(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    result.set_result(tensor)
    return result
