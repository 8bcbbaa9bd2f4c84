"""Virtual GPUs on a machine that has none, with CUDA's behaviour: the object that a user starts, enters and asks."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from devwidget.capture.interrupts import Lock, all_or_nothing, sure_exit, uninterrupted
from devwidget.gpus.virtual_machine import VirtualMachine, parse_cluster, read_cluster
from devwidget.records.device import SIMULATE_VARIABLE
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message
from devwidget.records.schema.public_calls import says_what_fits

if TYPE_CHECKING:
    from devwidget.gpus.machine import VirtualMemory
    from devwidget.gpus.session import Session


__all__ = ["Simulation", "active", "inherited", "memory", "simulate"]

_active: Simulation | None = None
_lock = Lock()
"""Held while one begins or ends."""


class Simulation:
    """Virtual GPUs, from `start` to `stop`.

    Attributes:
        gpus: how many.
        memory_bytes: the capacity of each, in bytes.
        compute: False if tensors have no values.
        is_inherited: whether they come from the parent process and this process has not asked for them.
    """

    _is_open = property(operator.attrgetter("_session"))  # a line of Python could be struck by a signal

    def __init__(self, cluster: VirtualMachine, *, is_inherited: bool = False) -> None:
        self._cluster, self.is_inherited = cluster, is_inherited
        self.gpus, self.memory_bytes, self.compute = cluster.gpus, cluster.memory_bytes, cluster.compute
        self._session: Session | None = None
        self._is_used = is_inherited

    @_lock
    def start(self) -> Simulation:
        """Give torch these GPUs from now on.

        Returns:
            This simulation, or the running one if it has the same GPUs, so that you can run a cell again.

        Raises:
            SimulationError: If other virtual GPUs are running already.
        """
        self._is_used = True
        if _active is not None and _active._cluster != self._cluster and _active._gives_way():
            _active._end()
        if _active is None:
            return self._begin()
        if _active._cluster != self._cluster:
            raise SimulationError(
                Message("other virtual GPUs are running already: {cluster}", cluster=_active._cluster.describe()),
                why=Message("{cluster} were asked for", cluster=self._cluster.describe()),
                instead=Message("%devwidget simulate off, or .stop() on the running simulation, then run this line again"),
            )
        return _active

    @all_or_nothing
    def _begin(self) -> None:
        global _active
        from devwidget.gpus import torch_internals  # imports torch: `import devwidget` stays light

        torch_internals.check_torch()
        from devwidget.gpus import session  # needs what was just checked

        # Kept before it begins: if that is cut short, `stop` takes out what is in.
        self._session = session.Session(self._cluster, self._forget)
        self._session.begin()
        _active = self

    def _gives_way(self) -> bool:
        """Whether the program of this process may have others: it has used none of what it inherits."""
        return self.is_inherited and self._session is not None and not self._session.is_in_use()

    def stop(self) -> None:
        """End: torch is as it was before. Does nothing if these GPUs are not running; called again, does what is left."""
        with uninterrupted():
            self._is_used = True
            self._end()

    @_lock
    def _end(self) -> None:
        if self._session is not None:
            self._session.end()

    def _forget(self) -> None:
        global _active
        self._session = None
        if _active is self:
            _active = None

    def __enter__(self) -> Simulation:
        return self.start()

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._session else "not running"
        if not self._session and not self._is_used:
            state = "not started: .start(), or with ..."
        return f"<{self.gpus} virtual GPUs, {state}>"

    def __del__(self) -> None:
        if not getattr(self, "_is_used", True):
            words = Message("the virtual GPUs were never started: `simulate(...).start()`, or `with simulate(...):`")
            warnings.warn(words, RuntimeWarning, stacklevel=2)  # at the line that let it go, as Python does with a coroutine


@says_what_fits
def simulate(
    gpus: int = 2, memory: int | str | Sequence[int | str] | None = None, compute: bool = True, *, card: str | None = None
) -> Simulation:
    """Simulate GPUs on the CPU: `with devwidget.simulate(2): ...`, or `.start()` and `.stop()`.

    Args:
        gpus: how many.
        memory: of each GPU: bytes, or text such as "16GiB" or "80 GB"; a sequence gives one size per GPU.
            "16GiB" if neither this nor a card is given.
        compute: False to follow placement and memory alone, with nothing allocated and no values.
        card: a kind of card, such as "A100-80GB", in place of `memory`: CUDA's context and cuBLAS's workspaces take their
            part, and memory is reserved in segments, as CUDA's caching allocator does by `PYTORCH_ALLOC_CONF`.

    Returns:
        A context manager, which has `.start()` and `.stop()` too.

    Raises:
        SimulationError: if that makes no sense.
    """
    if memory is None and card is None:
        memory = "16GiB"
    return Simulation(parse_cluster(gpus, memory, compute, card=card))


def inherited() -> Simulation | None:
    """Virtual GPUs that the environment names, running or not; None if it names none."""
    text = os.environ.get(SIMULATE_VARIABLE)
    if text:
        return Simulation(read_cluster(text), is_inherited=True)
    return None


def active() -> Simulation | None:
    """The simulation that is running, if any."""
    return _active


def memory() -> VirtualMemory:
    """The memory of the simulation that is running, for a recording to watch."""
    from devwidget.gpus.machine import VirtualMemory
    from devwidget.gpus.state import simulation

    return VirtualMemory(simulation.ledger)
