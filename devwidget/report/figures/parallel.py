"""DataParallel as it ran, from left to right: the batch cut, the replicas, the gather point."""

from __future__ import annotations

from devwidget.records.device import DeviceId
from devwidget.records.parallel import Replica
from devwidget.report.figures.frame import Figure, base_layout, figure
from devwidget.report.palette import device_hue
from devwidget.report.units import counted, format_bytes
from devwidget.views.parallel import ParallelCall


def parallel_figure(call: ParallelCall) -> Figure:
    """DataParallel as it ran, from left to right: the batch cut, the replicas, the gather point."""
    shares = _shares(call)
    data: list[Figure] = []
    notes: list[Figure] = [_note(0.07, 0.5, f"<b>batch</b><br>{counted(call.samples, 'sample')}<br>{call.source}", "center")]
    shapes = [_block(0.0, 0.14, 0.0, 1.0, call.source)]
    for replica, (low, high) in zip(call.replicas, shares, strict=True):
        hue = device_hue(replica.device)
        data.append(_band(0.14, 0.42, low, high, hue, _scatter_words(replica)))
        shapes.append(_block(0.42, 0.62, low, high, replica.device))
        notes.append(_note(0.52, (low + high) / 2, _replica_words(replica), "center"))
        notes.append(_note(0.28, (low + high) / 2, _scatter_words(replica), "center"))
        if call.gathered_on is not None:
            data.append(_band(0.62, 0.84, low, high, hue, _gather_words(replica, call.gathered_on)))
            notes.append(_note(0.73, (low + high) / 2, format_bytes(replica.output_bytes), "center"))
    if call.gathered_on is not None:
        shapes.append(_block(0.84, 1.0, 0.0, 1.0, call.gathered_on))
        words = f"<b>gathered on<br>{call.gathered_on}</b><br>{format_bytes(call.gathered_bytes)}<br>then the loss"
        notes.append(_note(0.92, 0.5, words, "center"))
    layout = base_layout(70 + 58 * len(call.replicas), {"l": 4, "r": 4, "t": 6, "b": 6})
    hidden = {"visible": False, "fixedrange": True}
    layout |= {"shapes": shapes, "annotations": notes, "showlegend": False, "hovermode": "closest"}
    layout |= {"xaxis": hidden | {"range": [-0.005, 1.005]}, "yaxis": hidden | {"range": [1.02, -0.02]}}
    words = "; ".join(f"{replica.device} {counted(replica.samples, 'sample')}" for replica in call.replicas)
    return figure(data, layout, f"batch of {call.samples} cut: {words}; gathered on {call.gathered_on}")


def _shares(call: ParallelCall) -> list[tuple[float, float]]:
    """Vertical extent of each replica: by its share of the batch, never too thin to read."""
    weights = [max(replica.samples, 0.6 * call.samples / len(call.replicas), 1) for replica in call.replicas]
    gap, low = 0.03, 0.0
    scale = (1 - gap * (len(weights) - 1)) / sum(weights)
    shares = []
    for weight in weights:
        shares.append((low, low + weight * scale))
        low += weight * scale + gap
    return shares


def _scatter_words(replica: Replica) -> str:
    copied = f"<br>+ {format_bytes(replica.parameter_bytes)} params" if replica.parameter_bytes else ""
    return f"{counted(replica.samples, 'sample')}, {format_bytes(replica.input_bytes)}{copied}"


def _replica_words(replica: Replica) -> str:
    return f"<b>{replica.device}</b>" + (f"<br>peak {format_bytes(replica.peak_bytes)}" if replica.peak_bytes else "")


def _gather_words(replica: Replica, target: DeviceId) -> str:
    return f"outputs {format_bytes(replica.output_bytes)}, {replica.device} → {target}"


def _band(left: float, right: float, low: float, high: float, hue: str, words: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "fill": "toself",
        "x": [left, right, right, left, left],
        "y": [low, low, high, high, low],
        "line": {"width": 0},
        "fillcolor": hue,
        "opacity": 0.22,
        "hoveron": "fills",
        "text": words,
        "hoverinfo": "text",
        "meta": "flow",
    }


def _block(left: float, right: float, low: float, high: float, device: DeviceId) -> Figure:
    hue = device_hue(device)
    return {
        "type": "rect", "x0": left, "x1": right, "y0": low, "y1": high,
        "line": {"width": 1.5, "color": hue}, "fillcolor": hue, "opacity": 0.35, "layer": "below",
    }  # fmt: skip


def _note(x: float, y: float, text: str, anchor: str) -> Figure:
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": anchor, "align": "center", "font": {"size": 11.5}}
