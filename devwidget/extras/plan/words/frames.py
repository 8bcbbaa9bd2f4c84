"""Plans, layouts and answers as data frames."""

from __future__ import annotations

from collections.abc import Sequence

from devwidget.extras.plan.records.answers import Changes, Generation, LargestBatch, Layout, OnCards, Tried
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


def _room_columns(tried: Sequence[Tried], *names: str) -> Columns:
    is_close: Columns = {"is_close": [each.fit == "fits by less" for each in tried]}
    return attribute_columns(tried, "on_card", "fits") | is_close | attribute_columns(tried, *names)


def _card_columns(cards: Sequence[Tried]) -> Columns:
    columns: Columns = {"card": [each.setting.card for each in cards], "capacity": [each.room.capacity for each in cards]}
    return columns | _room_columns(cards, "problem")


def _row_columns(answer: OnCards) -> Columns:
    cards = [card for row in answer.rows for card in row.cards]
    what = [row.what for row in answer.rows for _ in row.cards]
    return {"what": what, **_card_columns(cards), "change": [card.what for card in cards]}


def _run_columns(answer: LargestBatch) -> Columns:
    return {"size": [each.setting.batch for each in answer.tried], **_room_columns(answer.tried)}


def _change_columns(answer: Changes) -> Columns:
    columns = attribute_columns(answer.tried, "what")
    columns["saved"] = [answer.saved_by(each) for each in answer.tried]
    return columns | _room_columns(answer.tried, "cost", "code", "problem")


frame(Plan, {"devices": _plan_columns, "device_map": _device_map_columns})
frame(OnCards, {"cards": lambda answer: _card_columns(answer.tried), "rows": _row_columns})
frame(LargestBatch, {"runs": _run_columns})
frame(Changes, {"changes": _change_columns})
frame(
    Layout,
    {
        "blocks": columns_of_each("blocks", "path", "device", "weights", "kept", "beyond", "passed"),
        "devices": columns_of_each("devices", "device", "on_card", "capacity"),
    },
)
frame(Generation, {"runs": columns_of_each("runs", "length", "cache", "prefill", "decode")})
