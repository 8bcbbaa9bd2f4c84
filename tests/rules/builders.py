"""Small hand-made traces, so that rules are tested without torch."""

from __future__ import annotations

import itertools
from typing import Any

import devwidget.report  # noqa: F401  registers how a finding prints
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.parallel import DataParallelCall
from devwidget.records.site import Phase, Site
from devwidget.records.trace import Fault, Held, ModuleEvent, Move, Operand, OpEvent, Trace, UserMove, Wait
from devwidget.rules.registry import judge

CPU, GPU0, GPU1, GPU2, META = (
    DeviceId("cpu"), DeviceId("cuda", 0), DeviceId("cuda", 1), DeviceId("cuda", 2), DeviceId("meta"),
)  # fmt: skip
PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


def site(text: str, line: int = 10, function: str = "forward") -> Site:
    return Site("train.py", line, text, function)


def operand(name: str, device: DeviceId = GPU0, **more: Any) -> Operand:
    facts = {"shape": (2, 3), "dtype": "float32", "device": device, "bytes": 24}
    return Operand(name, **{"expression": name, **facts, **more})


def fault(*operands: Operand, **more: Any) -> Fault:
    names = " + ".join(each.name for each in operands) or "x + h"
    facts = {
        "number": 0, "what": "operands", "call": "add", "module": "block", "phase": "forward",
        "site": site(f"y = {names}", 20), "error": "RuntimeError: Expected all tensors to be on the same device",
        "operands": operands, "target": GPU0, "healed": True, "model_name": "model",
    }  # fmt: skip
    return Fault(**{**facts, **more})  # type: ignore[arg-type]


def crossing(number: int, source: DeviceId, target: DeviceId, **more: Any) -> UserMove:
    known = {"bytes": 64, "shape": (16,), "module": "block", "phase": "forward", "step": 0}
    return UserMove(number, source, target, **{**known, "site": site(f"x = x.to('{target}')", 10 + number), **more})


def chain(*devices: DeviceId, **more: Any) -> tuple[UserMove, ...]:
    """One piece of data that goes from device to device, with computation wherever it arrives."""
    hops = enumerate(itertools.pairwise(devices))
    return tuple(crossing(n, a, b, **{"computed": True, "chain": tuple(range(n)), **more}) for n, (a, b) in hops)


def wait(**more: Any) -> Wait:
    known = {
        "call": "item", "device": GPU0, "module": "block", "phase": "forward", "library": False,
        "site": site("if loss.item() > 1:", 12), "expression": "loss.item()",
    }  # fmt: skip
    return Wait(**{**known, **more})


def step(**more: Any) -> Trace:
    """A whole training step on one GPU, with a wrapper for one in it, and nothing wrong but what is added."""
    ops = tuple(OpEvent("addmm", "block", phase, site("y = self.block(x)"), (GPU0,), GPU0) for phase in PHASES)
    moved = Move(CPU, GPU0, 64, (16,), "float32", None, "build", site("x = x.to('cuda:0')", 3, "train"), "explicit")
    ran = ModuleEvent("block", "Linear", (GPU0,), (GPU0,), 1, 0.001)
    wrapped = DataParallelCall(0, "wrapped", "Linear", (GPU0,), GPU0)
    ran_in_it = {"ops": ops, "moves": (moved,), "modules": (ran,), "parallel": (wrapped,), "phases": PHASES}
    return Trace(**{**ran_in_it, **more})


def findings(*faults: Fault, **more: Any) -> tuple[Finding, ...]:
    """What all rules find together in a step with these faults and facts."""
    return judge(step(faults=faults, **more)).findings


def is_silent(kind: str, *faults: Fault, **more: Any) -> bool:
    """Whether a rule looked at such a step, and neither it nor any other found something."""
    judged = judge(step(faults=faults, **more))
    return kind in judged.checked and judged.findings == ()


def attribute(name: str, statement: str) -> Held:
    note = "of an unregistered Linear" if name.endswith(".weight") else ""
    went = site("model = Net().to('cuda:0')", 2, "build")
    assigned = site(statement, 5, "__init__")
    return Held("block", name, "attribute", "Block", assigned, note=note, model_devices=(GPU0,), went=went)
