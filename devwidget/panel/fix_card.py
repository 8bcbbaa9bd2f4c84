"""A short report with an edit that its page applies: below an exception, and for `%devwidget fix apply`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from devwidget.language.speaking import say
from devwidget.panel.actions import AppliedFix, MainThreadJobs
from devwidget.panel.displayed import Displayed
from devwidget.panel.questions import read_field, refusal_words
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label, file_label
from devwidget.report.page.draw_page import draw_body
from devwidget.report.page.html import as_saved
from devwidget.report.report_parts import Part, Sentence
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.words import row_words, site_words
from devwidget.report.text.draw_text import draw_lines

CARD = ("words.js", "base.js", "parts.js", "apply.js", "card.js")
_BELOW = Message("Edited {place}. Run its cell and the cells below it again.", place="")
_DONE = {
    "now": Message("Edited {place}. The change is live: run the cell again.", place=""),
    "cell": _BELOW,
    "below": _BELOW,
    "build": Message("Edited {place}. Build its objects again, then run the cell again.", place=""),
    "restart": Message("Edited {place}. Restart the kernel, and run the cells again.", place=""),
}
Question = dict[str, Any]


class FixCard(Displayed):
    """A card; it keeps texts and the edit only.

    Args:
        parts: Builds the report, in the current language.
        fix: What its button applies; None for no button.
        prepare: Prepares a fix for the user's source.
        folds: Fold the output above it in the page.
        writes: Apply the fix as soon as the page shows it.
    """

    shows = object
    scripts, styles = CARD, ("base.css", "card.css")

    def __init__(
        self,
        parts: Callable[[], Sequence[Part]],
        fix: Fix | None,
        prepare: Callable[[Fix], AppliedFix],
        *,
        folds: bool = False,
        writes: bool = False,
    ) -> None:
        self._parts, self._fix, self._prepare = parts, fix, prepare
        self._applied: AppliedFix | None = None
        self._is_live = False  # whether the fix has taken effect
        self._outcome = ""
        self._jobs = MainThreadJobs()
        super().__init__(html="", buttons=[], folds=folds, writes=writes)

    def __repr__(self) -> str:
        return text_of(draw_lines(self._parts()))

    def _plain_html(self) -> str:
        outcome = [Sentence(self._outcome, "verdict")] if self._outcome else []
        return draw_body([*self._parts(), *outcome])

    def _saved_html(self) -> str:
        return as_saved(self._plain_html(), is_panel=False)

    def draw(self) -> None:
        """Draw the card."""
        self.view.html, self.view.buttons = self._plain_html(), list(self._buttons())
        self.save_again()

    def _buttons(self) -> Iterator[tuple[str, str]]:
        if self._is_live:
            yield "undo", say("Undo")
        elif self._fix is not None and self._fix.edits:
            files = row_words(dict.fromkeys(file_label(edit.file) for edit in self._fix.edits if not cell_label(edit.file)))
            yield "apply", say("Apply to {files}", files=files) if files else say("Apply")

    def answer_question(self, message: Question) -> Question:
        """Answer the page, which writes the cells that an answer has, and then says what came of it."""
        fix, applied = self._fix, self._applied
        match message.get("ask"):
            case "apply" if fix is not None and not self._is_live:
                self.view.writes = False
                with self._show_refusal():
                    self._applied = self._prepare(fix)
                    return {"cells": list(map(asdict, self._applied.cells))}
            case "undo" if applied is not None and self._is_live:
                return {"cells": list(map(asdict, applied.cells)), "back": True}
            case "written" if applied is not None:
                why = read_field(message, "why", str, "")
                self._jobs.submit(lambda: self._note_written(applied, why))
        return {}

    @contextlib.contextmanager
    def _show_refusal(self) -> Iterator[None]:
        try:
            yield
        except DevwidgetError as error:
            self._outcome = refusal_words(error)
            self.draw()

    def _note_written(self, applied: AppliedFix, why: str) -> None:
        """Let the fix take effect, or be undone, after the page has written its cells; `why` says why it has not."""
        places = row_words(dict.fromkeys(site_words(edit.site) for edit in applied.fix.edits))
        with self._show_refusal():
            if why:
                rest = say("Copy the lines above to {place}.", place=places)
                self._outcome = f"{why} {rest}"
            elif self._is_live:
                applied.take_back()
                self._is_live, self._outcome = False, ""
            else:
                applied.take_effect()
                self._is_live, self._outcome = True, say(_DONE[applied.works].template, place=places)
            self.draw()
