"""A DataParallel call, and what else spreads a model, as small dictionaries of words that a page can draw as they are."""

from __future__ import annotations

from typing import Any

from devwidget.language.speaking import say
from devwidget.records.parallel import Replica
from devwidget.report.advice.parallel_advice import advice
from devwidget.report.figures import parallel_figure
from devwidget.report.style.units import format_bytes, format_seconds
from devwidget.report.text.parallel_marks import mark_of, parallel_marks
from devwidget.report.text.parallel_words import card_words, parallel_summary, parallel_title, parallel_words
from devwidget.views.parallel import ParallelCall

Card = dict[str, Any]


def parallel_card(call: ParallelCall) -> Card:
    """One DataParallel module: the drawing, a row for each replica, what it costs and what to change."""
    return {
        "title": parallel_title(call),
        "summary": parallel_summary(call),
        "replicas": [_replica(call, replica) for replica in call.replicas],
        "idle": [str(device) for device in call.idle],
        "words": parallel_words(call),
        "advice": [{"about": each.about, "text": each.text, "code": each.code} for each in advice(call)],
        "marks": parallel_marks(call) if call.replicas else {},
        "figure": parallel_figure(call) if call.replicas else None,
    }


def _replica(call: ParallelCall, replica: Replica) -> Card:
    peak, known, own = call.peak(replica.device), call.memory.get(replica.device), say("own")
    return {
        "device": str(replica.device),
        "mark": mark_of("replica", replica.number),
        "card": card_words(call, replica.device),
        "uuid": known.uuid if known is not None else "",
        "samples": replica.samples,
        "input": format_bytes(replica.input_bytes),
        "parameters": format_bytes(replica.parameter_bytes) if replica.parameter_bytes else own,
        "output": format_bytes(replica.output_bytes),
        "gradients": format_bytes(replica.gradient_bytes)
        if replica.gradient_bytes
        else say("own")
        if call.call.backward
        else "",
        "peak": format_bytes(peak) if peak else "",
        "time": format_seconds(replica.seconds) if replica.seconds else "",
    }
