"""Small hand-made faults, so that rules are tested without torch."""

from __future__ import annotations

from devwidget.records.device import DeviceId
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules._registry import judge

CPU, GPU0, GPU1 = DeviceId("cpu"), DeviceId("cuda", 0), DeviceId("cuda", 1)


def site(text: str, line: int = 10, function: str = "forward") -> Site:
    return Site("train.py", line, text, function)


def operand(name: str, device: DeviceId = GPU0, **more: object) -> Operand:
    return Operand(name, name, (2, 3), "float32", device, 24, **more)  # type: ignore[arg-type]


def fault(*operands: Operand, **more: object) -> Fault:
    facts = {
        "number": 0, "what": "operands", "call": "add", "module": "block", "phase": "forward",
        "site": site("y = x + h", 20), "error": "RuntimeError: Expected all tensors to be on the same device",
        "operands": operands, "target": GPU0, "healed": True, "model_name": "model",
    }  # fmt: skip
    return Fault(**{**facts, **more})  # type: ignore[arg-type]


def findings(*faults: Fault) -> tuple:
    return judge(Trace(faults=faults)).findings


def attribute(name: str, statement: str) -> Held:
    note = "of an unregistered Linear" if name.endswith(".weight") else ""
    return Held("block", name, "attribute", "Block", site(statement, 5, "__init__"), note=note)
