"""invalid-device: a device that does not exist on this machine.

Why: torch knows devices by type (`cuda`, `mps`, `cpu`) and by ordinal among the *visible* ones.
Bad: `model.to('gpu')`; `torch.device('cuda:2')` after `CUDA_VISIBLE_DEVICES=2,3`, which renumbers them 0 and 1.
Good: `model.to('cuda')`; `torch.device('cuda:0')`.
Source: the documentation of `torch.device`, and of CUDA_VISIBLE_DEVICES in the CUDA programming guide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import CUDA, CURRENT_SETTERS, KINDS, PLACING_METHODS, AcceleratorKind
from devwidget.records.finding import Claim, Confidence, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Fault, Trace
from devwidget.rules.fault_finding import finding_of
from devwidget.rules.registry import rule
from devwidget.rules.repairs.edits import Draft, mended, read_to


@rule("invalid-device", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each request of a device that is not there."""
    for fault in trace.faults:
        if fault.what == "device":
            yield _make_finding(fault)


def _make_finding(fault: Fault) -> Finding:
    ordinal = fault.requested.partition(":")[2].isdigit()
    why = (
        Message("ordinals count the visible devices from 0")
        if ordinal
        else Message("a device string begins with a type that torch knows")
    )
    if fault.call == "load":
        why = Message("a file remembers on which devices its tensors were, and `torch.load` reads them back to there")
    variable = _kind(fault).visible_variable
    visible = Message(
        "{variable} hides and renumbers cards: the first visible one is {type}:0", variable=variable, type=_kind(fault).type
    )
    return finding_of(
        fault,
        "invalid-device",
        headline=Claim("nowhere", fault.number, name=fault.requested, others=fault.available),
        why=why,
        birth=fault.birth or fault.site,
        fixes=_list_fixes(fault),
        notes=(visible,) if ordinal and variable else (),
        cause=fault.requested,
        operands=(),
    )


def _list_fixes(fault: Fault) -> Iterator[Fix | None]:
    right = _right_name(fault)
    kind = _kind(fault).type
    if fault.call == "load":
        words = Message("read it to a device that is there")
        yield mended(fault.site, words, lambda draft, statement: read_to(draft, statement, repr(right)), "likely")
        yield Fix(words, f"torch.load(..., map_location={right!r})", "likely")
        return
    if fault.call == "DataParallel":
        words = Message("use the GPUs that are there")
        yield mended(fault.site, words, lambda draft, statement: _those_there(draft, statement, kind), "likely")
        yield Fix(words, f"device_ids=list(range(torch.{kind}.device_count()))", "likely")
        return
    sure: Confidence = "sure" if right in (kind, f"{kind}:0") else "likely"
    for site in (fault.birth, fault.site):
        yield mended(
            site,
            Message("ask for {right}", right=repr(right)),
            lambda draft, statement: _renamed(draft, statement, fault, right),
            sure,
        )
    yield Fix(Message("ask for {right}", right=repr(right)), repr(right), sure)
    if right.startswith(kind):
        portable = f"device = {kind!r} if torch.{kind}.is_available() else 'cpu'"
        yield Fix(Message("take the GPU only where there is one"), portable, "choice")


def _those_there(draft: Draft, statement: ast.stmt, kind: str) -> None:
    """`DataParallel(model, device_ids=gpus)` takes as many as there are."""
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("DataParallel") and len(node.args) < 2:
            draft.keyword(node, "device_ids", f"list(range(torch.{kind}.device_count()))")


def _renamed(draft: Draft, statement: ast.stmt, fault: Fault, right: str) -> None:
    """The wrong name, or the wrong ordinal, in a statement, for the right one."""
    index = fault.requested.partition(":")[2]
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Constant) and node.value == fault.requested:
            draft.replace(node, repr(right))
        elif isinstance(node, ast.Call) and ast.unparse(node).endswith("device_count()"):
            draft.append(node, " - 1")
        elif index and isinstance(node, ast.Constant) and node.value == int(index) and type(node.value) is int:
            around = draft.code.parents.get(node)
            names = ("device", *PLACING_METHODS, *(CURRENT_SETTERS if right != "cpu" else ()))  # the CPU has no number
            if isinstance(around, ast.Call) and ast.unparse(around.func).rpartition(".")[2] in names:
                draft.replace(node, "0")


def _right_name(fault: Fault) -> str:
    """The device that was meant: `cuda` for a wrong word, the first visible one for a wrong ordinal, cpu without GPUs."""
    first, kind = fault.available[0], _kind(fault).type
    return kind if first == f"{kind}:0" and ":" not in fault.requested else first


def _kind(fault: Fault) -> AcceleratorKind:
    """The accelerator of the machine, else the one that was asked for; CUDA for a word that is none."""
    kinds = (name.partition(":")[0] for name in (fault.available[0], fault.requested))
    return next((KINDS[kind] for kind in kinds if kind in KINDS), CUDA)
