"""Where a click on a part of the DataParallel drawing leads: figures in words, the line, and the row of the module tree."""

from __future__ import annotations

from typing import Any

from devwidget.language.speaking import say
from devwidget.records.parallel import Piece, Replica
from devwidget.report.style.units import counted, format_bytes, format_seconds
from devwidget.report.style.words import first_line, piece_words, row_words, site_words, tensor_words
from devwidget.report.text.parallel_words import card_words
from devwidget.views.parallel import ParallelCall

Mark = dict[str, Any]


def mark_of(what: str, number: int = -1) -> str:
    """The name of a part of the drawing."""
    return what if number < 0 else f"{what}-{number}"


def parallel_marks(call: ParallelCall) -> dict[str, Mark]:
    """One entry for each part that can be clicked."""
    inner = f"{call.wrapper}.module".strip(".")
    line = {"place": site_words(call.call.site), "code": first_line(call.call.site)}
    marks: dict[str, Mark] = {
        "batch": _mark(
            say("batch"),
            say("{samples} along axis {dim}", samples=counted(call.samples, "sample"), dim=call.call.dim),
            call.wrapper,
            line,
        ),
        "model": _mark(
            call.call.class_name, say("lives on {source}, copied to the others at each call", source=call.source), inner, line
        ),
        "outputs": _mark(
            say("outputs"),
            say(
                "{size} gathered on {point}",
                size=format_bytes(call.gathered_bytes),
                point=call.gather_point,
            ),
            call.wrapper,
            line,
        ),
        "gradients": _mark(
            say("gradients"),
            say("{size} copied to {source}", size=format_bytes(call.reduced_bytes), source=call.source),
            inner,
            line,
        ),
    }
    for replica in call.replicas:
        marks |= _of_replica(call, replica, inner, line)
    return marks


def _of_replica(call: ParallelCall, replica: Replica, inner: str, line: Mark) -> dict[str, Mark]:
    device, number = replica.device, replica.number
    parameters, buffers = format_bytes(replica.parameter_bytes - replica.buffer_bytes), format_bytes(replica.buffer_bytes)
    spans = replica.thread or say("never ran")
    if replica.thread and replica.seconds:
        spans = say("{time} in {thread}", time=format_seconds(replica.seconds), thread=replica.thread)
    card, title = card_words(call, device), say("replica {number} on {device}", number=number, device=device)
    outer, home, source = call.wrapper, call.gather_point, call.source
    marks = {
        "replica": _mark(f"{title} ({card})" if card else title, spans, inner, line),
        "scatter": _mark(say("batch to {device}", device=device), _parts(replica.inputs), outer, line),
        "replicate": _mark(
            say("model to {device}", device=device),
            say("{parameters} of parameters, {buffers} of buffers", parameters=parameters, buffers=buffers),
            inner,
            line,
        ),
        "gather": _mark(say("outputs of {device} to {home}", device=device, home=home), _parts(replica.outputs), outer, line),
        "reduce": _mark(
            say("gradients of {device} to {source}", device=device, source=source),
            format_bytes(replica.gradient_bytes),
            inner,
            line,
        ),
    }
    return {mark_of(what, number): mark for what, mark in marks.items()}


def _parts(pieces: tuple[Piece, ...], most: int = 6) -> str:
    parts = [f"`{piece_words(piece)}` {tensor_words(piece.dtype, piece.shape)} {format_bytes(piece.bytes)}" for piece in pieces]
    if not parts:
        return say("no tensors")
    shown = row_words(parts[:most])
    return say("{parts}, and {count} more", parts=shown, count=len(parts) - most) if len(parts) > most else shown


def _mark(title: str, text: str, path: str, line: Mark) -> Mark:
    return {"title": title, "text": text, "path": path, **line}
