"""Other processes: one that is spawned has no virtual GPUs, and NCCL, which connects real ones, is not there. Both are said."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from devwidget.records.errors import SimulationError, message
from devwidget.records.schema.message import Message, in_language
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches

_MODULES = "torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"
"""Each has names of its own for the same functions."""
_NOT_THERE = "NCCL built in"
_WORKERS = "torch.utils.data"
"""Processes of torch's loaders, which leave GPUs alone."""


class NoNccl(SimulationError, RuntimeError):
    """What torch raises where it is built without NCCL, with what would do."""


def install(patches: Patches) -> None:
    """Speak where a process starts without virtual GPUs, and where NCCL is asked for."""
    patches.wrap(BaseProcess, "start", _warning)
    for name in _MODULES:
        if name in sys.modules:
            for function in ("init_process_group", "new_group"):
                patches.wrap(sys.modules[name], function, _explaining)


def _warning(original: Callable[[BaseProcess], None]) -> Callable[[BaseProcess], None]:
    @functools.wraps(original)
    def start(self: BaseProcess) -> None:
        if _way(self) != "fork" and not str(getattr(getattr(self, "_target", None), "__module__", "")).startswith(_WORKERS):
            warnings.warn(in_language(_told(self.name)), RuntimeWarning, stacklevel=2)
        original(self)

    return start


def _told(name: str) -> Message:
    return Message(
        "{name} has no virtual GPUs, because it begins as a new process: it sees the GPUs of this machine. "
        "Let what it runs begin with {line}",
        name=name,
        line=f"devwidget.simulate({len(SimulationState.ledger.accounts)}).start()",
    )


def _way(process: BaseProcess) -> str:
    """How a process begins: as its class says, or as all do."""
    return getattr(process, "_start_method", None) or multiprocessing.get_start_method()


def _explaining(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def begin(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if _NOT_THERE not in message(error) or isinstance(error, NoNccl):
                raise
            raise NoNccl(
                Message("virtual GPUs have no NCCL: {error}", error=message(error)),
                why=Message("it connects real GPUs"),
                instead=Message('init_process_group("gloo"), which carries tensors of virtual GPUs too'),
            ) from error

    return begin
