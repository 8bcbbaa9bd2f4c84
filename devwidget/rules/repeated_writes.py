"""Repeated writes into a tensor on another device, and how to create the tensor on the device of the values."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Fault, Operand, UserMove
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.moves_where_made import create_there
from devwidget.rules.found import Found


def fillings(crossings: Iterable[UserMove]) -> Iterator[Found]:
    """Yield lines that fill a CPU tensor more than once in a step with values that receive gradients.

    Values collected without gradients are results. A tensor that outlives the step, or was created with `device="cpu"`, is on
    the CPU on purpose.
    """
    writes = Counter((crossing.site, crossing.step) for crossing in crossings if crossing.into is not None)
    lines: dict[object, UserMove] = {}
    for each in crossings:
        if writes[each.site, each.step] > 1 and _is_trained_through(each):
            lines.setdefault(each.site, each)
    yield from map(_make_fill_finding, lines.values())


def _is_trained_through(write: UserMove) -> bool:
    into = write.into
    if into is None or into.held is not None or not _made_without_device(into):
        return False
    if write.phase not in ("forward", "loss") or write.target.kind != "cpu":
        return False
    return write.trains and not write.meant


def _made_without_device(operand: Operand) -> bool:
    call = parsed_expression(operand.birth_call)
    if not isinstance(call, ast.Call) or not operand.birth_direct or operand.birth_op not in FACTORIES:
        return False
    return all(keyword.arg not in ("device", None) for keyword in call.keywords)


def _make_fill_finding(write: UserMove) -> Found:
    assert write.into is not None
    name = f"`{write.into.name}`" if write.into.name else Message("the tensor")
    facts = {"name": name, "target": write.target, "source": write.source, "bytes": write.bytes}
    return Found(
        write,
        Message(
            "{name} on {target} is filled from {source}, {bytes} bytes at a time, and gradients flow back through it", **facts
        ),
        why=Message("each write syncs with the GPU, and each gradient is copied back"),
        birth=write.into.birth,
        fixes=(made_there(write), Fix(Message("create it on the device of the values that are written into it"))),
    )


def made_there(write: UserMove) -> Fix | None:
    """Return the fix that creates the written tensor on the device of the values."""
    if write.into is None:
        return None
    fault = Fault(write.number, "operands", "__setitem__", write.module, write.phase, write.site, "", target=write.source)
    return create_there(Case(fault, write.into, literal=False))
