"""Writes: what a line puts into a tensor on another device, many times over, and what it would take to put it there once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Fault, Operand, UserMove
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.moves_where_made import where_made
from devwidget.rules.edits.moves_where_used import above_the_loop
from devwidget.rules.edits.source_file import code_at
from devwidget.rules.found import Found


def fillings(crossings: Iterable[UserMove]) -> Iterator[Found]:
    """Lines that fill a tensor on the host more than once in a step, with values that are trained through.

    What is collected without a gradient is a result, and one that outlives the step or was told `device="cpu"` is there on
    purpose.
    """
    writes = Counter((crossing.site, crossing.step) for crossing in crossings if crossing.into is not None)
    lines: dict[object, UserMove] = {}
    for each in crossings:
        into, again = each.into, writes[each.site, each.step] > 1
        in_step = each.phase in ("forward", "loss") and each.target.kind == "cpu" and not each.meant
        if into is not None and again and in_step and each.trains and into.held is None and _made_without_device(into):
            lines.setdefault(each.site, each)
    yield from map(_make_fill_finding, lines.values())


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
        Message("{name} on {target} is filled from {source}, {bytes} bytes at a time, and trained through", **facts),
        why=Message("at each write the host waits for the GPU, and each gradient goes back the same way"),
        birth=write.into.birth,
        fixes=(made_there(write), Fix(Message("make it on the device of what is written into it"))),
    )


def made_there(write: UserMove) -> Fix | None:
    """A device for the tensor that was written into, where it is made."""
    if write.into is None:
        return None
    fault = Fault(write.number, "operands", "__setitem__", write.module, write.phase, write.site, "", target=write.source)
    return where_made(fault, write.into, literal=False)


def repeated(crossings: Iterable[UserMove]) -> Iterator[Found]:
    """Lines that copy one tensor from the host into a tensor on a GPU again and again, and it is the same each time.

    What is filled before the first step is filled once; a program without steps has nothing else.
    """
    steps = any(crossing.step >= 0 for crossing in crossings)
    lines: dict[object, list[UserMove]] = {}
    for each in crossings:
        in_step = each.phase in ("forward", "loss") or not steps
        if each.again and in_step and each.source.kind == "cpu" and each.target.is_accelerator and not each.meant:
            lines.setdefault(each.site, []).append(each)
    yield from map(_written_again, lines.values())


def _written_again(writes: list[UserMove]) -> Found:
    write = writes[0]
    facts = {"bytes": write.bytes, "source": write.source, "target": write.target}
    return Found(
        write,
        Message("the same {bytes} bytes are copied from {source} to {target} again and again by one line", **facts),
        why=Message("at each write the host waits for the bus, and the tensor has not changed since the last one"),
        fixes=(_moved_above(write), Fix(Message("move it to {target} once, before the loop", target=write.target))),
        severity="info",
    )


def _moved_above(write: UserMove) -> Fix | None:
    """`value = value.to(buffer.device)` before the loop around `buffer[i] = value`."""
    at = code_at(write.site)
    statement = at[1] if at is not None else None
    if at is None or not isinstance(statement, ast.Assign):
        return None
    target = statement.targets[0]
    if isinstance(target, ast.Subscript):
        home = ast.unparse(target.value)
    else:
        home = ""
    draft = Draft(at[0])
    above_the_loop(draft, statement, ast.unparse(statement.value), home)
    return fix(Message("move it before the loop"), draft)
