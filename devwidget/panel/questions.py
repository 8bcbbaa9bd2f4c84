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
    control.send({"to": _echo_id(asked.get("id")), **answer})


def refusal_words(error: BaseException) -> str:
    """Return the text that a page shows for an exception."""
    if isinstance(error, DevwidgetError):
        return safe_block(str(error))
    return safe_block(error_text(error))


def answer_panel(panel: DeviceWidget, message: Message) -> Message:
    """Answer a question of a panel's page."""

    def submit(run: Callable[[], object]) -> Message:
        return {"state": panel.jobs.submit(lambda: _run_shown(panel, run))}

    finding, fix = (read_field(message, name, int, -1) for name in ("finding", "fix"))
    match message.get("ask"):
        case "hello":
            return {}
        case "trace":
            request = _parse_request(message)
            return submit(lambda: panel.run_trace(request))
        case "try":
            return submit(lambda: panel.try_fix(finding, fix))
        case "apply":
            prepared = panel.prepare_fix(finding, fix)
            files = [file.rpartition("/")[2] for file in prepared.files]
            return {"cells": list(map(asdict, prepared.cells)), "files": files, "works": prepared.works}
        case "applied":
            return submit(panel.apply_fix)
        case "undo":
            return submit(panel.undo_fix)
        case "cancel":
            return {"cancelled": panel.jobs.cancel()}
        case "keep":
            panel.keep()
            return {}
        case "select":
            return {"detail": panel.choose_row(read_field(message, "row", int, -1))}
        case "devices":
            opened = [key for key in read_field(message, "opened", list, []) if isinstance(key, str)]
            return panel.draw_devices(opened, every=read_field(message, "every", bool, False))
        case "export":
            return export_panel(panel.snapshot, panel.trace, read_field(message, "form", str, ""))
        case ask:
            answers = (section.answer_question(message) for section in panel.sections)
            unknown = {"error": f"unknown question {ask!a:.{_LONGEST_ID}}"}
            return next((answer for answer in answers if answer is not None), unknown)


def _run_shown(panel: DeviceWidget, run: Callable[[], object]) -> None:
    """Run a job, whose exceptions are in the status line."""
    with contextlib.suppress(Exception, KeyboardInterrupt), collect_printed(panel.show_printed):
        run()


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
    text = str(value)
    return value if isinstance(value, int | str) and text.isprintable() and len(text) <= _LONGEST_ID else None


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
