"""Plans, layouts and answers as data frames."""

from __future__ import annotations

from devwidget.extras.plan.records.answers import Changes, Generation, LargestBatch, Layout, OnCards
from devwidget.extras.plan.records.plan import Plan
from devwidget.report.data_frames import Columns, as_text, attribute_columns, columns_of_each, frame


def _plan_columns(plan: Plan) -> Columns:
    parts = ("weights", "gradients", "optimizer", "activations")
    totals = "reserved", "context", "on_card", "fits", "is_close"
    columns = attribute_columns(plan.devices, "device", "capacity", "peak", *parts, *totals)
    for name in ("peak_at", "tips_over"):
        moments = [getattr(device, name) for device in plan.devices]
        for what in ("phase", "module", "site"):
            columns[f"{name}_{what}"] = [as_text(getattr(moment, what, None)) for moment in moments]
    return columns


def _device_map_columns(plan: Plan) -> Columns:
    return {"path": [path for path, _ in plan.device_map], "device": [device for _, device in plan.device_map]}


_CARD = ("card", "on_card", "capacity", "fits", "is_close", "problem")


def _row_columns(cards: OnCards) -> Columns:
    each = [(row, card) for row in cards.rows for card in row.cards]
    return {"what": [row.what for row, _ in each], **attribute_columns([card for _, card in each], *_CARD, "change")}


frame(Plan, {"devices": _plan_columns, "device_map": _device_map_columns})
frame(OnCards, {"cards": columns_of_each("cards", *_CARD), "rows": _row_columns})
frame(LargestBatch, {"runs": columns_of_each("runs", "size", "on_card", "fits", "is_close")})
frame(
    Changes, {"changes": columns_of_each("changes", "what", "on_card", "saved", "fits", "is_close", "cost", "code", "problem")}
)
frame(
    Layout,
    {
        "blocks": columns_of_each("blocks", "path", "device", "weights", "kept", "beyond", "passed"),
        "devices": columns_of_each("devices", "device", "on_card", "capacity"),
    },
)
frame(Generation, {"runs": columns_of_each("runs", "length", "cache", "prefill", "decode")})
