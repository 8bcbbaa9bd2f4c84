"""devwidget: see where every tensor of a PyTorch model lives, trace one batch, and fix what is on the wrong device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from devwidget._version import __version__
from devwidget.records.schema.record import presented_by

__all__ = [
    "Agent",
    "BatchError",
    "Changes",
    "Claim",
    "Cluster",
    "Comparison",
    "DataParallelCall",
    "DeviceId",
    "DeviceMemory",
    "DevicePlan",
    "DeviceWidget",
    "DevwidgetError",
    "Edit",
    "Explanation",
    "Fault",
    "Finding",
    "Fix",
    "Generation",
    "Inputs",
    "LargestBatch",
    "Layout",
    "LibraryLine",
    "ModuleEvent",
    "ModuleFacts",
    "Move",
    "OpEvent",
    "Operand",
    "ParallelPlan",
    "PlacementError",
    "Plan",
    "Rank",
    "RankReport",
    "RanksWidget",
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
    "Watch",
    "WatchedJob",
    "WatchedRun",
    "__version__",
    "allow",
    "check",
    "compare",
    "explain",
    "load",
    "open",
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
    "watch",
]
_HOMES = {
    **dict.fromkeys(("BatchError", "DevwidgetError", "PlacementError", "SimulationError"), "devwidget.records.errors"),
    **dict.fromkeys(("load", "open"), "devwidget.saved_files"),
    "set_language": "devwidget.language.speaking",
    "Agent": "devwidget.distributed.agent",
    "Simulation": "devwidget.simulator",
    "Changes": "devwidget.records.answers",
    "Claim": "devwidget.records.finding",
    "Cluster": "devwidget.records.ranks.cluster",
    "Comparison": "devwidget.records.comparison",
    "DataParallelCall": "devwidget.records.parallel",
    "DeviceId": "devwidget.records.device",
    "DeviceMemory": "devwidget.records.memory",
    "DevicePlan": "devwidget.records.plan",
    "DeviceWidget": "devwidget.ui.panel",
    "Edit": "devwidget.records.finding",
    "Explanation": "devwidget.records.explanation",
    "Fault": "devwidget.records.trace",
    "Finding": "devwidget.records.finding",
    "Fix": "devwidget.records.finding",
    "Generation": "devwidget.records.answers",
    "LargestBatch": "devwidget.records.answers",
    "Layout": "devwidget.records.answers",
    "LibraryLine": "devwidget.records.site",
    "ModuleEvent": "devwidget.records.trace",
    "ModuleFacts": "devwidget.records.snapshot",
    "Move": "devwidget.records.trace",
    "OpEvent": "devwidget.records.trace",
    "Operand": "devwidget.records.trace",
    "ParallelPlan": "devwidget.records.ranks.parallel_plan",
    "Plan": "devwidget.records.plan",
    "Rank": "devwidget.records.ranks.cluster",
    "RankReport": "devwidget.records.ranks.rank",
    "RanksWidget": "devwidget.ui.ranks_panel",
    "Record": "devwidget.records.schema.record",
    "Site": "devwidget.records.site",
    "Snapshot": "devwidget.records.snapshot",
    "TensorFacts": "devwidget.records.snapshot",
    "Trace": "devwidget.records.trace",
    "UnreadableError": "devwidget.records.errors",
    "Wait": "devwidget.records.trace",
    "Watch": "devwidget.watching.watch",
    "WatchedJob": "devwidget.records.watched_job",
    "WatchedRun": "devwidget.records.watch",
}
"""Of what is not in `api`: records, and what opens them, load nothing of torch, and panels only when they are named."""

_FOLDERS = ("integrations",)
"""Of names that stand in a folder of their own, which is loaded when it is named."""

if TYPE_CHECKING:
    from devwidget import integrations as integrations
    from devwidget.api import (
        Recording,
        allow,
        check,
        compare,
        explain,
        place,
        plan,
        ranks,
        record,
        serve,
        show,
        simulate,
        snapshot,
        trace,
        watch,
    )
    from devwidget.capture.step.batch import Inputs
    from devwidget.distributed.agent import Agent
    from devwidget.language.speaking import set_language
    from devwidget.records.answers import Changes, Generation, LargestBatch, Layout
    from devwidget.records.comparison import Comparison
    from devwidget.records.device import DeviceId
    from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError, UnreadableError
    from devwidget.records.explanation import Explanation
    from devwidget.records.finding import Claim, Edit, Finding, Fix
    from devwidget.records.memory import DeviceMemory
    from devwidget.records.parallel import DataParallelCall
    from devwidget.records.plan import DevicePlan, Plan
    from devwidget.records.ranks.cluster import Cluster, Rank
    from devwidget.records.ranks.parallel_plan import ParallelPlan
    from devwidget.records.ranks.rank import RankReport
    from devwidget.records.schema.record import Record
    from devwidget.records.site import LibraryLine, Site
    from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
    from devwidget.records.trace import Fault, ModuleEvent, Move, Operand, OpEvent, Trace, Wait
    from devwidget.records.watch import WatchedRun
    from devwidget.records.watched_job import WatchedJob
    from devwidget.saved_files import load, open
    from devwidget.simulator import Simulation
    from devwidget.ui.panel import DeviceWidget
    from devwidget.ui.ranks_panel import RanksWidget
    from devwidget.watching.watch import Watch
else:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Loads the package at the first use of one of its names: a notebook that only imports it waits for nothing."""
        if name in _FOLDERS:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in __all__:
            from devwidget.records.errors import nearest

            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
        home = importlib.import_module(_HOMES.get(name, "devwidget.api"))
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


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
