"""devwidget: show the device of every tensor in a PyTorch model, trace one batch, and fix misplaced tensors."""

from __future__ import annotations

import importlib

from devwidget import extras
from devwidget._version import __version__ as __version__
from devwidget.records.schema.record import presented_by

_NAMES = [
    "BatchError",
    "RankRole",
    "Comparison",
    "DataParallelCall",
    "DeviceId",
    "DeviceMemory",
    "DeviceWidget",
    "DevwidgetError",
    "Edit",
    "Explanation",
    "Fault",
    "Finding",
    "Fix",
    "HeldMemory",
    "Inputs",
    "LibraryLine",
    "ModuleEvent",
    "ModuleFacts",
    "Move",
    "OpEvent",
    "Operand",
    "PlacementError",
    "Record",
    "Recording",
    "Simulation",
    "SimulationError",
    "Site",
    "Snapshot",
    "TensorFacts",
    "Trace",
    "UnreadableError",
    "Wait",
    "__version__",
    "allow",
    "check",
    "compare",
    "explain",
    "load",
    "memory_holders",
    "open",
    "record",
    "set_language",
    "show",
    "simulate",
    "snapshot",
    "trace",
]
"""Public names of the core; extras have more."""
_HOMES = {
    **dict.fromkeys(("BatchError", "DevwidgetError", "PlacementError", "SimulationError"), "devwidget.records.errors"),
    **dict.fromkeys(("load", "open"), "devwidget.saved_files"),
    "set_language": "devwidget.language.speaking",
    "Simulation": "devwidget.gpus",
    "RankRole": "devwidget.records.finding",
    "Comparison": "devwidget.records.comparison",
    "DataParallelCall": "devwidget.records.parallel",
    "DeviceId": "devwidget.records.device",
    "DeviceMemory": "devwidget.records.memory",
    "DeviceWidget": "devwidget.panel.panel",
    "Edit": "devwidget.records.finding",
    "Explanation": "devwidget.records.explanation",
    "Fault": "devwidget.records.trace",
    "Finding": "devwidget.records.finding",
    "Fix": "devwidget.records.finding",
    "HeldMemory": "devwidget.records.held_memory",
    "LibraryLine": "devwidget.records.site",
    "ModuleEvent": "devwidget.records.trace",
    "ModuleFacts": "devwidget.records.snapshot",
    "Move": "devwidget.records.trace",
    "OpEvent": "devwidget.records.trace",
    "Operand": "devwidget.records.trace",
    "Record": "devwidget.records.schema.record",
    "Site": "devwidget.records.site",
    "Snapshot": "devwidget.records.snapshot",
    "TensorFacts": "devwidget.records.snapshot",
    "Trace": "devwidget.records.trace",
    "UnreadableError": "devwidget.records.errors",
    "Wait": "devwidget.records.trace",
}
"""Modules of names outside of `api`. Records and what opens them do not load torch; panels load when you name them."""

_FOLDERS = ("integrations",)
"""Names that are packages of their own, loaded on first use."""


def __getattr__(name: str) -> object:
    """Load the package at the first use of one of its names, so that importing it is fast."""
    if name == "__all__":
        return _list_names()
    if name in _FOLDERS:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _list_names():
        from devwidget.records.errors import nearest

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, _list_names())}")
    home = extras.find_home("names", name) or importlib.import_module(_HOMES.get(name, "devwidget.api"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*_list_names(), *(name for name in globals() if name.startswith("__"))})


def _list_names() -> list[str]:
    return sorted({*_NAMES, *extras.offered("names")})


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
