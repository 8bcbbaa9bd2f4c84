"""What a panel may ask for, functions handed in by the layer that knows torch; and what others may ask of a panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.ui.jobs import MainThreadJobs
from devwidget.views.memory import Held
from devwidget.views.placement import Placement


@dataclass(frozen=True)
class TraceRequest:
    """The inputs of one traced step, as typed; "" for none.

    Attributes:
        batch, loss, target: expressions, evaluated in the user's namespace.
        heal: move stray tensors and go on, so that one run finds all faults.
    """

    batch: str = ""
    loss: str = ""
    target: str = ""
    heal: bool = True


@dataclass(frozen=True)
class PanelActions:
    """The panel's way to the model. None of these may hold the model strongly.

    Attributes:
        snapshot: where everything is now; None when the model is gone.
        trace: runs one step; its second argument is called with words of progress. Raises DevwidgetError with a text to show.
        names: notebook variables that could be a batch, best first.
        memory: memory of each device now; cheap.
        training: bytes of gradients and optimizer state now, by device; cheap, and asked on another thread while a cell runs.
        ranks: how all ranks of the job are asked; None where this process does not answer as one of them.
        request: what the inputs say at first.
        forget: lets go of a batch that only the panel holds.
        try_fix: runs the step of a request twice, and once of them with a fix; raises as `trace`.
    """

    snapshot: Callable[[], Snapshot | None]
    trace: Callable[[TraceRequest, Callable[[str], None]], Trace]
    names: Callable[[], tuple[str, ...]]
    memory: Callable[[], tuple[DeviceMemory, ...]]
    request: TraceRequest = TraceRequest()
    forget: Callable[[], None] = lambda: None
    training: Callable[[], Held] = dict
    ranks: Callable[[], Callable[[], Cluster] | None] = lambda: None
    try_fix: Callable[[TraceRequest, Fix, Callable[[str], None]], Fix] = lambda request, fix, progress: fix.try_it()


class Panel(Protocol):
    """A panel as its page's questions and the notebook's cells see it."""

    snapshot: Snapshot | None
    trace: Trace | None
    table: Placement
    jobs: MainThreadJobs

    @property
    def is_shown(self) -> bool:
        """Whether a page displays it now."""

    def select(self, row: int) -> None:
        """Note the row that was chosen on the page."""

    def keep(self) -> None:
        """Keep the last trace, to compare later ones with."""

    def show_ranks(self) -> None:
        """Ask all ranks of the job, and show them."""

    def show_printed(self, text: str) -> None:
        """Show what the traced code has printed."""

    def run_trace(self, request: TraceRequest | None = None) -> Trace:
        """Trace one step."""

    def try_fix(self, finding: int, fix: int) -> Trace:
        """Try one fix of the last trace."""

    def after_cell(self) -> None:
        """Follow a cell that has ended."""

    def sample_memory(self) -> bool:
        """Redraw the memory bars; False to stop watching."""
