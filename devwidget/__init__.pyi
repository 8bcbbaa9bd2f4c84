"""The public names and their types; `devwidget/__init__.py` looks each up when it is used. Checked by tests/test_imports.py."""

from devwidget import integrations as integrations
from devwidget._version import __version__ as __version__
from devwidget.api import Recording, allow, check, compare, explain, memory_holders, record, show, simulate, snapshot, trace
from devwidget.capture.step.batch import Inputs
from devwidget.extras.agents.records.evidence import Evidence
from devwidget.extras.agents.try_edit import try_edit
from devwidget.extras.plan.api import place, plan
from devwidget.extras.plan.records.answers import Changes, Generation, LargestBatch, Layout
from devwidget.extras.plan.records.parallel_plan import ParallelPlan
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.extras.ranks.agent import Agent
from devwidget.extras.ranks.api import ranks, serve
from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.extras.ranks.records.rank import RankReport
from devwidget.extras.ranks.screen import RanksWidget
from devwidget.extras.watch.api import watch
from devwidget.extras.watch.records.run import WatchedRun
from devwidget.extras.watch.watch import Watch
from devwidget.gpus import Simulation
from devwidget.language.speaking import set_language
from devwidget.panel.panel import DeviceWidget
from devwidget.records.comparison import Comparison
from devwidget.records.device import DeviceId
from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError, UnreadableError
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Edit, Finding, Fix, RankRole
from devwidget.records.held_memory import HeldMemory
from devwidget.records.memory import DeviceMemory
from devwidget.records.parallel import DataParallelCall
from devwidget.records.schema.record import Record
from devwidget.records.site import LibraryLine, Site
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
from devwidget.records.trace import Fault, ModuleEvent, Move, Operand, OpEvent, Trace, Wait
from devwidget.saved_files import load, open

__all__ = [
    "Agent",
    "BatchError",
    "Changes",
    "Cluster",
    "Comparison",
    "DataParallelCall",
    "DeviceId",
    "DeviceMemory",
    "DevicePlan",
    "DeviceWidget",
    "DevwidgetError",
    "Edit",
    "Evidence",
    "Explanation",
    "Fault",
    "Finding",
    "Fix",
    "Generation",
    "HeldMemory",
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
    "RankRole",
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
    "WatchedRun",
    "__version__",
    "allow",
    "check",
    "compare",
    "explain",
    "load",
    "memory_holders",
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
    "try_edit",
    "watch",
]

def load_ipython_extension(ip: object) -> None: ...
def unload_ipython_extension(ip: object) -> None: ...
