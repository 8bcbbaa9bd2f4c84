"""Display a widget: live where a page runs it, as plain HTML in a saved notebook."""

from __future__ import annotations

import weakref
from typing import Any, Self

import ipywidgets

from devwidget.language.speaking import follow
from devwidget.panel.bridge import Channel, page_class, refer_to
from devwidget.panel.questions import answer_page
from devwidget.records.errors import ArgumentError
from devwidget.records.schema.message import Message
from devwidget.records.site import is_in_jupyter, runs_in_notebook
from devwidget.report.page.assets import page_words
from devwidget.report.page.html import as_saved


class Displayed(ipywidgets.VBox):
    """A widget whose `view` is drawn by a page, which asks questions through its `control`.

    The saved output follows the panel: a page that displayed it replaces the old text with the new one.

    Attributes:
        shows: The class of the record that it shows.
        scripts, styles: Files of its page.
    """

    shows: type
    scripts: tuple[str, ...]
    styles: tuple[str, ...]
    _saved: str
    """Plain HTML without style or script, which every viewer keeps."""
    _was_displayed = False

    def __new__(cls, given: object = None, *args: Any, **kwargs: Any) -> Self:
        """Check the argument before the widget exists: an incomplete widget cannot be closed."""
        if not isinstance(given, cls.shows):
            what = Message("a {panel} cannot be built from a `{kind}`", panel=cls.__name__, kind=type(given).__name__)
            raise ArgumentError(what, instead="devwidget.show(model, batch)")
        made: Self = super().__new__(cls)
        return made

    def __init__(self, **state: object) -> None:
        """Open the page with a state, whose later changes go to it."""
        super().__init__()
        self.control = Channel()
        page = page_class(type(self).__name__, self.scripts, self.styles)
        self.view: Any = page(control=refer_to(self.control), words={}, status={}, **state)
        self.children = (self.view,)
        self.control.on_msg(self._on_message)
        self.speak()
        _displayed.add(self)

    def speak(self) -> None:
        """Set all texts in the current language, and after each change of it."""
        self.view.words = page_words(*self.scripts)
        self.draw()

    def draw(self) -> None:
        """Draw everything that the page shows."""
        raise NotImplementedError

    def answer_question(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of the page, which shows exceptions."""
        return {}

    def _on_message(self, control: Channel, message: Any, buffers: Any) -> None:
        answer_page(control, message, self.answer_question)

    def close(self) -> None:
        """Close the widget, which no page shows any more."""
        _displayed.discard(self)
        self.close_parts(self.view, self.control)
        self.layout.close()
        super().close()

    def close_parts(self, *parts: Any) -> None:
        """Close widgets with their layouts, which stay open by themselves."""
        for widget in parts:
            widget.layout.close()
            widget.close()

    def _plain_html(self) -> str:
        return str(self._saved)

    def _saved_html(self) -> str:
        """Return plain HTML for an output next to the live panel."""
        return as_saved(self._plain_html())

    def _view_id(self) -> str:
        return str(self.view.model_id)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        bundle = {**self._as_text(self._plain_html()), **self._live_view()}
        _, metadata = self.view._repr_mimebundle_()  # in Colab anywidget says who draws it
        if metadata:
            return (bundle, metadata)
        return bundle

    @classmethod
    def show_live(cls, record: object) -> None:
        """Display a record live; raise NotImplementedError where no page runs widgets, so that IPython shows it as text."""
        if not runs_in_notebook():
            raise NotImplementedError("there is no page")
        from IPython.display import display

        display(cls(record))  # type: ignore[call-arg]

    def _ipython_display_(self) -> None:
        """Display two outputs; a page shows one. JupyterLab ignores other formats of a widget output."""
        if not is_in_jupyter():
            raise NotImplementedError("IPython displays the MIME bundle instead")
        from IPython.display import display

        display(self._as_text(self._saved_html()), raw=True, display_id=self._view_id())
        display(self._live_view(), raw=True)
        self._was_displayed = True

    def save_again(self) -> None:
        """Update the output that is saved with the notebook. A terminal keeps its printed text."""
        if self._was_displayed and runs_in_notebook():
            from IPython.display import update_display

            update_display(self._as_text(self._saved_html()), raw=True, display_id=self._view_id())

    def _as_text(self, html: str) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": html}

    def _live_view(self) -> dict[str, Any]:
        link = {"version_major": 2, "version_minor": 0, "model_id": self._view_id()}
        return {"application/vnd.jupyter.widget-view+json": link}


# Weak: a widget without other references is not kept alive.
_displayed: weakref.WeakSet[Displayed] = weakref.WeakSet()


def _speak_again() -> None:
    for each in list(_displayed):
        each.speak()


follow(_speak_again)
