"""Messages of any shape from a page: each gets one answer that can be sent, and none changes more than it asks for."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from devwidget.panel.panel import DeviceWidget
from tests.browser.handmade_panel import open_panel

ASKS = ("hello", "trace", "cancel", "select", "export", "Trace", "", None, 7, [], {}, "\ud800", "x" * 10_000)
VALUES = (
    None, True, False, 0, 1, -1, 7, 10**30, 0.5, float("nan"), float("inf"), "", "batch", "missing(", "\x00\n\u202e", "\ud800",
    "html", "csv", "x" * 10_000, [], [1], {}, {"ask": "trace"}, [[[]]], b"raw",
)  # fmt: skip
NAMES = ("id", "ask", "row", "form", "batch", "loss", "target", "heal", "more")


def message(chance: random.Random) -> Any:
    """A question with parts left out, exchanged or made up; one of five is no question at all."""
    if chance.random() < 0.2:
        return chance.choice(VALUES)
    parts = {name: chance.choice(VALUES) for name in NAMES if chance.random() < 0.5}
    return {**parts, **({"id": 3} if chance.random() < 0.5 else {}), "ask": chance.choice(ASKS)}


def answers(panel: DeviceWidget, content: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    panel.control.send = sent.append
    panel.control._handle_custom_msg(content, [])  # logs what a callback raises, and sends nothing then
    return sent


def outcomes(panel: DeviceWidget, count: int) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for seed in range(count):
        content = message(random.Random(seed))
        sent = answers(panel, content)
        assert len(sent) == 1, f"{seed}: {content!r:.200}"
        json.dumps(sent[0], allow_nan=False, ensure_ascii=False).encode("utf-8")
        found["refused" if "error" in sent[0] else "answered"] += 1
    return found


@pytest.fixture
def panel() -> Iterator[DeviceWidget]:
    opened, _ = open_panel()
    yield opened
    opened.close()


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.fuzz)])
def test_messages_of_any_shape_get_one_answer_each(panel: DeviceWidget, count: int) -> None:
    found = outcomes(panel, count)
    print(f"{count} panel messages: {dict(found)}")
    assert min(found["answered"], found["refused"]) > 10


@pytest.mark.parametrize("content", [None, "trace", [["ask", "trace"]]])
def test_a_message_that_is_no_object_is_refused(panel: DeviceWidget, content: Any) -> None:
    assert answers(panel, content) == [{"to": None, "error": "unknown question None"}]


@pytest.mark.parametrize("part", [{"batch": ["x"]}, {"loss": 7}, {"heal": "no"}])
def test_a_trace_with_inputs_of_other_types_is_refused_and_not_run(panel: DeviceWidget, part: dict[str, Any]) -> None:
    (answer,) = answers(panel, {"id": 1, "ask": "trace", **part})
    assert answer["error"].startswith("TypeError: `")
    assert panel.trace is None
