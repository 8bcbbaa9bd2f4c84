"""Answer questions from the page. Every question gets an answer or an error, on any thread."""

from __future__ import annotations

import builtins
import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from devwidget.language.speaking import both, say, say_count
from devwidget.panel.actions import TraceRequest
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.report.page.content import detail_content
from devwidget.report.page.exports import export_panel
from devwidget.report.style.safe_text import safe_block

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget

Message = dict[str, Any]
T = TypeVar("T")
_LONGEST_ID = 100


def answer_page(control: Any, message: Any, answer_question: Callable[[Message], Message]) -> None:
    """Answer one message of a control widget, even if it is malformed or the answer raises."""
    asked: Message = message if isinstance(message, dict) else {}
    try:
        answer = answer_question(asked)
    except Exception as error:
        answer = {"error": refusal_words(error)}
    control.send({"to": _echo_id(asked.get("id")), "ask": _echo_id(asked.get("ask")), **answer})


def refusal_words(error: BaseException) -> str:
    """Return the text that a page shows for an exception."""
    if isinstance(error, DevwidgetError):
        return safe_block(str(error))
    return safe_block(error_text(error))


class PanelQuestions:
    """Answer the questions of one panel. Exceptions are sent to the page."""

    def __init__(self, panel: DeviceWidget) -> None:
        self._panel = panel

    def on_message(self, control: Any, message: Any, buffers: Any) -> None:
        """Handle one message of the control widget, even if it is not an object."""
        answer_page(control, message, self._answer_question)

    def _answer_question(self, message: Message) -> Message:
        ask = message.get("ask")
        if ask == "hello":
            return {}
        if ask == "trace":
            request = _parse_request(message)
            return {"state": self._panel.jobs.submit(lambda: self._run_shown(lambda: self._panel.run_trace(request)))}
        if ask == "try":
            finding, fix = read_field(message, "finding", int, -1), read_field(message, "fix", int, -1)
            return {"state": self._panel.jobs.submit(lambda: self._run_shown(lambda: self._panel.try_fix(finding, fix)))}
        if ask == "apply":
            prepared = self._panel.prepare_fix(read_field(message, "finding", int, -1), read_field(message, "fix", int, -1))
            files = [file.rpartition("/")[2] for file in prepared.files]
            return {"cells": list(map(asdict, prepared.cells)), "files": files, "works": prepared.works}
        if ask == "applied":
            return {"state": self._panel.jobs.submit(lambda: self._run_shown(self._panel.apply_fix))}
        if ask == "undo":
            return {"state": self._panel.jobs.submit(lambda: self._run_shown(self._panel.undo_fix))}
        if ask == "cancel":
            return {"cancelled": self._panel.jobs.cancel()}
        if ask == "keep":
            self._panel.keep()
            return {}
        if ask == "select":
            self._panel.choose_row(read_field(message, "row", int, -1))
            return {}
        if ask == "detail":
            return {"detail": self._make_detail(read_field(message, "row", int, -1))}
        if ask == "devices":
            opened = [key for key in read_field(message, "opened", list, []) if isinstance(key, str)]
            return self._panel.draw_devices(opened, every=read_field(message, "every", bool, False))
        if ask == "export":
            return export_panel(self._panel.snapshot, self._panel.trace, read_field(message, "form", str, ""))
        answer = self._panel.answer_section(message)
        if answer is not None:
            return answer
        return {"error": f"unknown question {ask!a:.{_LONGEST_ID}}"}

    def _run_shown(self, run: Callable[[], object]) -> None:
        try:
            with collect_printed(self._panel.show_printed):
                run()
        except (DevwidgetError, KeyboardInterrupt):
            return  # shown in the status line
        except Exception:
            return  # likewise: a user's own exception, already in the status line

    def _make_detail(self, row: int) -> Message | None:
        snapshot, table = self._panel.snapshot, self._panel.table
        if snapshot is not None and 0 <= row < len(table):
            return detail_content(snapshot, table, row)
        return None


def _parse_request(message: Message) -> TraceRequest:
    texts = {name: read_field(message, name, str, "").strip() for name in ("batch", "loss", "target")}
    return TraceRequest(**texts, heal=read_field(message, "heal", bool, True), samples=read_field(message, "samples", int, 0))


def read_field(message: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    """Read a field of a question; null or missing gives the default.

    Raises:
        TypeError: If the field has another type.
    """
    value = message.get(name)
    if value is None:
        return default
    # Not isinstance: `true` is no row.
    if type(value) is not kind:
        raise TypeError(f"`{name}` is {value!a:.{_LONGEST_ID}}, expected {kind.__name__}")
    return value


def _echo_id(value: object) -> str | int | None:
    """Return the id of a question if it can be sent back: a number or a short printable text."""
    if type(value) is int and abs(value) < 2**53:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_ID and value.isprintable():
        return value
    return None


# Characters kept, the last ones: a model that prints every tensor must not fill a page.
MOST = 20_000


@contextlib.contextmanager
def collect_printed(show: Callable[[str], None]) -> Iterator[None]:
    """Collect printed output, and pass it on at the end, even after an exception. `input()` raises."""
    text, asks = io.StringIO(), builtins.input
    show("")
    try:
        builtins.input = _refuse_input
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield
    finally:
        builtins.input = asks
        said = text.getvalue()
        cut = say_count(*both("... {count} earlier character", "... {count} earlier characters"), len(said) - MOST)
        show(said if len(said) <= MOST else f"{cut}\n{said[-MOST:]}")


def _refuse_input(prompt: object = "") -> str:
    words = "`input()` does not work while the panel traces, because no cell is running; run `panel.run_trace()` in a cell"
    raise EOFError(say(words))
