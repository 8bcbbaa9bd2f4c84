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
    "Agent": "devwidget.extras.ranks.agent",
    "Simulation": "devwidget.gpus",
    "Changes": "devwidget.extras.plan.records.answers",
    "Claim": "devwidget.records.finding",
    "Cluster": "devwidget.extras.ranks.records.cluster",
    "Comparison": "devwidget.records.comparison",
    "DataParallelCall": "devwidget.records.parallel",
    "DeviceId": "devwidget.records.device",
    "DeviceMemory": "devwidget.records.memory",
    "DevicePlan": "devwidget.extras.plan.records.plan",
    "DeviceWidget": "devwidget.panel.panel",
    "Edit": "devwidget.records.finding",
    "Explanation": "devwidget.records.explanation",
    "Fault": "devwidget.records.trace",
    "Finding": "devwidget.records.finding",
    "Fix": "devwidget.records.finding",
    "Generation": "devwidget.extras.plan.records.answers",
    "LargestBatch": "devwidget.extras.plan.records.answers",
    "Layout": "devwidget.extras.plan.records.answers",
    "LibraryLine": "devwidget.records.site",
    "ModuleEvent": "devwidget.records.trace",
    "ModuleFacts": "devwidget.records.snapshot",
    "Move": "devwidget.records.trace",
    "OpEvent": "devwidget.records.trace",
    "Operand": "devwidget.records.trace",
    "ParallelPlan": "devwidget.extras.plan.records.parallel_plan",
    "Plan": "devwidget.extras.plan.records.plan",
    "Rank": "devwidget.extras.ranks.records.cluster",
    "RankReport": "devwidget.extras.ranks.records.rank",
    "RanksWidget": "devwidget.extras.ranks.screen",
    "Record": "devwidget.records.schema.record",
    "Site": "devwidget.records.site",
    "Snapshot": "devwidget.records.snapshot",
    "TensorFacts": "devwidget.records.snapshot",
    "Trace": "devwidget.records.trace",
    "UnreadableError": "devwidget.records.errors",
    "Wait": "devwidget.records.trace",
    "Watch": "devwidget.extras.watch.watch",
    "WatchedJob": "devwidget.extras.watch.records.job",
    "WatchedRun": "devwidget.extras.watch.records.run",
}
"""Of what is not in `api`: records, and what opens them, load nothing of torch, and panels only when they are named."""

_FOLDERS = ("integrations",)
"""Of names that stand in a folder of their own, which is loaded when it is named."""

if TYPE_CHECKING:
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
    from devwidget.extras.plan.records.answers import Changes, Generation, LargestBatch, Layout
    from devwidget.extras.plan.records.parallel_plan import ParallelPlan
    from devwidget.extras.plan.records.plan import DevicePlan, Plan
    from devwidget.extras.ranks.agent import Agent
    from devwidget.extras.ranks.records.cluster import Cluster, Rank
    from devwidget.extras.ranks.records.rank import RankReport
    from devwidget.extras.ranks.screen import RanksWidget
    from devwidget.extras.watch import integrations as integrations
    from devwidget.extras.watch.records.job import WatchedJob
    from devwidget.extras.watch.records.run import WatchedRun
    from devwidget.extras.watch.watch import Watch
    from devwidget.gpus import Simulation
    from devwidget.language.speaking import set_language
    from devwidget.panel.panel import DeviceWidget
    from devwidget.records.comparison import Comparison
    from devwidget.records.device import DeviceId
    from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError, UnreadableError
    from devwidget.records.explanation import Explanation
    from devwidget.records.finding import Claim, Edit, Finding, Fix
    from devwidget.records.memory import DeviceMemory
    from devwidget.records.parallel import DataParallelCall
    from devwidget.records.schema.record import Record
    from devwidget.records.site import LibraryLine, Site
    from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
    from devwidget.records.trace import Fault, ModuleEvent, Move, Operand, OpEvent, Trace, Wait
    from devwidget.saved_files import load, open
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
