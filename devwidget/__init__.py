"""devwidget: see where every tensor of a PyTorch model lives, trace one batch, and fix what is on the wrong device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devwidget._version import __version__
from devwidget.records.schema.record import presented_by

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
    "compare",
    "explain",
    "load",
    "open",
    "pipeline",
    "place",
    "plan",
    "ranks",
    "record",
    "serve",
    "set_language",
    "show",
    "simulate",
    "snapshot",
    "trace",
]

if TYPE_CHECKING:
    from devwidget.api import (
        Recording,
        allow,
        check,
        compare,
        explain,
        load,
        open,
        pipeline,
        place,
        plan,
        ranks,
        record,
        serve,
        set_language,
        show,
        simulate,
        snapshot,
        trace,
    )
    from devwidget.capture.step.batch import Inputs
    from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError
else:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Loads the package at the first use of one of its names: a notebook that only imports it waits for nothing."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from devwidget import api

        value = globals()[name] = getattr(api, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


@presented_by
def _words() -> None:
    """The words of a record, also where only its class was imported, as `pickle` does."""
    import devwidget.report  # noqa: F401


def load_ipython_extension(ip: object) -> None:
    """`%load_ext devwidget`: registers the magics; loads nothing heavy."""
    from devwidget import magics

    magics.load_ipython_extension(ip)


def unload_ipython_extension(ip: object) -> None:
    """`%unload_ext devwidget`: takes the magics out again."""
    from devwidget import magics

    magics.unload_ipython_extension(ip)
