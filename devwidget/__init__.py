"""devwidget: see where every tensor of a PyTorch model lives, trace one batch, and fix what is on the wrong device."""

from devwidget._version import __version__
from devwidget.api import Recording, allow, check, explain, load, plan, record, show, simulate, snapshot, trace
from devwidget.capture.step.batch import Inputs
from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError

__all__ = [
    "BatchError",
    "DevwidgetError",
    "Inputs",
    "PlacementError",
    "Recording",
    "SimulationError",
    "__version__",
    "allow",
    "check",
    "explain",
    "load",
    "plan",
    "record",
    "show",
    "simulate",
    "snapshot",
    "trace",
]


def load_ipython_extension(ip: object) -> None:
    """`%load_ext devwidget`: registers the magics; loads nothing heavy."""
    from devwidget import magics

    magics.load_ipython_extension(ip)


def unload_ipython_extension(ip: object) -> None:
    """`%unload_ext devwidget`: takes the magics out again."""
    from devwidget import magics

    magics.unload_ipython_extension(ip)
