"""devwidget: show the device of every tensor in a PyTorch model, trace one batch, and fix misplaced tensors."""

from __future__ import annotations

import importlib

from devwidget import extras
from devwidget._version import __version__ as __version__
from devwidget.records.schema.record import presented_by

_HOMES = {
    "devwidget.api": (
        "Inputs",
        "Recording",
        "allow",
        "check",
        "compare",
        "explain",
        "memory_holders",
        "record",
        "show",
        "simulate",
        "snapshot",
        "trace",
    ),
    "devwidget.gpus": ("Simulation",),
    "devwidget.language.speaking": ("set_language",),
    "devwidget.panel.panel": ("DeviceWidget",),
    "devwidget.records.comparison": ("Comparison",),
    "devwidget.records.device": ("DeviceId",),
    "devwidget.records.errors": ("BatchError", "DevwidgetError", "PlacementError", "SimulationError", "UnreadableError"),
    "devwidget.records.explanation": ("Explanation",),
    "devwidget.records.finding": ("RankRole", "Edit", "Finding", "Fix"),
    "devwidget.records.held_memory": ("HeldMemory",),
    "devwidget.records.memory": ("DeviceMemory",),
    "devwidget.records.parallel": ("DataParallelCall",),
    "devwidget.records.schema.record": ("Record",),
    "devwidget.records.site": ("LibraryLine", "Site"),
    "devwidget.records.snapshot": ("ModuleFacts", "Snapshot", "TensorFacts"),
    "devwidget.records.trace": ("Fault", "ModuleEvent", "Move", "OpEvent", "Operand", "Trace", "Wait"),
    "devwidget.saved_files": ("load", "open"),
}
"""Public names of the core by their modules; extras have more. Records and what opens them do not load torch."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load the package at the first use of one of its names, so that importing it is fast."""
    if name == "__all__":
        return _list_names()
    if name == "integrations":
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _list_names():
        from devwidget.records.errors import nearest

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, _list_names())}")
    home = extras.find_home("names", name) or importlib.import_module(_HOME_OF[name])
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*_list_names(), *(name for name in globals() if name.startswith("__"))})


def _list_names() -> list[str]:
    return sorted({*_HOME_OF, "__version__", *extras.offered("names")})


@presented_by
def _words() -> None:
    """The words of a record, also where only its class was imported, as `pickle` does."""
    import devwidget.report  # noqa: F401

    extras.load_all("words")


def load_ipython_extension(ip: object) -> None:
    """Register the magics: `%load_ext devwidget`. Fast; does not load torch."""
    from devwidget import magics

    magics.load_ipython_extension(ip)


def unload_ipython_extension(ip: object) -> None:
    """Remove the magics: `%unload_ext devwidget`."""
    from devwidget import magics

    magics.unload_ipython_extension(ip)
