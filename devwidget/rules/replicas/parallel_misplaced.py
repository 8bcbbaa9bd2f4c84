"""parallel-misplaced: a `DataParallel` wrapper and the placement of its module disagree.

Why: `DataParallel` copies the module from `device_ids[0]` at every call, so all of it must be there.
Bad: `nn.DataParallel(model.to('cuda:0'), device_ids=[2, 3])`.
Good: `nn.DataParallel(model.to('cuda:2'), device_ids=[2, 3])`.
Source: `torch.nn.DataParallel.forward`, "module must have its parameters and buffers on device".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import CPU, DeviceId
from devwidget.records.fault_details import WrappedElsewhere
from devwidget.records.finding import Confidence, Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import name_of_called, targets_of
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.call_edits import add_keyword
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.copies import copy_moved, is_moved_away
from devwidget.rules.edits.devices import is_move
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.source_file import Code
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import strays_in


@rule(
    "parallel-misplaced",
    "error",
    needs=("replicas",),
    why=Message("replicas are copied from `device_ids[0]`, so every parameter and buffer must be there"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each wrapper that could not run."""
    for fault in trace.faults:
        if isinstance(fault.detail, WrappedElsewhere):
            yield _make_finding(trace, fault, fault.detail)


def _met_inside(trace: Trace, places: tuple[DeviceId, ...]) -> Iterator[int]:
    """Numbers of the faults that the same parameters cause in the module when it runs without its wrapper."""
    for fault, stray in strays_in(trace, "operands"):
        if stray.held is not None and stray.held.how in ("parameter", "buffer") and stray.device in places:
            yield fault.number


def _make_finding(trace: Trace, fault: Fault, wrapped: WrappedElsewhere) -> Found:
    ids, found = wrapped.device_ids, wrapped.found
    outside = fault.operands[0]
    facts = {"name": outside.argument, "device": outside.device, "target": fault.target}
    away = is_moved_away(trace, outside.birth, fault.target)
    return Found(
        fault,
        Message(
            "`DataParallel` with device_ids [{device_ids}] wraps a model on {found}",
            device_ids=", ".join(map(str, ids)),
            found=", ".join(map(str, found)),
        ),
        birth=outside.birth if away else fault.birth or fault.site,
        fixes=_fixes_of_move(fault, outside) if away else _list_fixes(fault, wrapped),
        notes=(Message("`{name}` is on {device}, but `device_ids[0]` is {target}", **facts),),
        operands=(),
        explains=_met_inside(trace, found),
    )


def _fixes_of_move(fault: Fault, outside: Operand) -> Iterator[Fix | None]:
    """The model was on the right device when it was wrapped; its parameters were moved later."""
    model = fault.model_name or "model"
    yield copy_moved(outside.birth, model)
    yield Fix(Message("move it back before it is used"), f"{model}.to({str(fault.target)!r})")


def _list_fixes(fault: Fault, wrapped: WrappedElsewhere) -> Iterator[Fix | None]:
    model, target, found = fault.model_name or "model", str(fault.target), wrapped.found
    first = found[0].index if len(found) == 1 else None
    if wrapped.split:
        words = Message("use the model without DataParallel: its layers are on several GPUs")
        yield mended(fault.birth, words, _unwrapped, instead="")
        if wrapped.split == "map":
            return
    elif len(found) > 1:
        yield mended(
            fault.birth,
            Message("create it on the device of the rest of the model"),
            add_keyword,
            FACTORIES,
            "device",
            repr(target),
        )
    move = f"{model}.to({target!r})"
    if found == (CPU,):
        words = Message("remove the wrapper, to run the model on the CPU")
        removed = mended(fault.birth, words, _unwrapped, confidence="choice")
        words = Message("move the model before wrapping it, to run it on GPUs")
        moved = mended(fault.birth, words, _move_before_wrapping, target, confidence="choice", instead=move)
        choices = [removed, moved]
        if wrapped.given not in ((), (CPU,)):  # the batch is on a GPU
            choices.reverse()
        yield from choices
        return
    if first is not None:
        yield mended(fault.birth, Message("put the model's GPU first in the list"), _first_id, first)
    words = Message("move the model to `device_ids[0]`")
    confidence: Confidence = "choice" if wrapped.split else "likely"
    yield mended(fault.birth, words, _move_before_wrapping, target, confidence=confidence, instead=move)


def _wrappers(draft: Draft, statement: ast.stmt) -> Iterator[ast.Call]:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and name_of_called(node).endswith("DataParallel") and node.args:
            yield node


def _unwrapped(draft: Draft, statement: ast.stmt) -> None:
    for node in _wrappers(draft, statement):
        draft.replace(node, draft.code.text(node.args[0]))


def _move_before_wrapping(draft: Draft, statement: ast.stmt, target: str) -> None:
    """Move the model before it is wrapped; if the wrapper is moved too, change that move."""
    for node in _wrappers(draft, statement):
        moves = _moves_of(draft.code, statement, node)
        for move, wrapper in moves:
            draft.replace(move, f"{draft.code.text(wrapper)}.to({target!r})")
        if not moves:
            draft.append(node.args[0], f".to({target!r})")


def _moves_of(code: Code, statement: ast.stmt, wrapper: ast.Call) -> list[tuple[ast.Call, ast.expr]]:
    """`nn.DataParallel(model).cuda()`, and `model.to(...)` below in the same function, each with what it moves."""
    names = {ast.unparse(target) for target in targets_of(statement)}
    found = []
    last = statement.end_lineno or statement.lineno
    for node in ast.walk(code.scope(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=moved)) if is_move(node):
                is_below = ast.unparse(moved) in names and node.lineno > last
                if moved is wrapper or is_below:
                    found.append((node, moved))
    return found


def _first_id(draft: Draft, statement: ast.stmt, first: int) -> None:
    """`device_ids=[2, 3]` becomes `device_ids=[0, 3]` for a model on cuda:0, and `[1, 0]` becomes `[0, 1]`."""
    for node in _wrappers(draft, statement):
        for keyword in node.keywords:
            if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List) and keyword.value.elts:
                ids = [draft.code.text(element) for element in keyword.value.elts]
                if str(first) in ids:
                    ids.remove(str(first))
                else:
                    del ids[0]
                draft.replace(keyword.value, f"[{', '.join([str(first), *ids])}]")
