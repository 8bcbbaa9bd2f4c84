"""Display a widget: live where a page runs it, as plain HTML in a saved notebook."""

from __future__ import annotations

import weakref
from typing import Any, Self

from devwidget.language.speaking import follow
from devwidget.records.errors import ArgumentError
from devwidget.records.schema.message import Message
from devwidget.records.site import is_in_jupyter, runs_in_notebook
from devwidget.report.page.html import as_saved


class Displayed:
    """Mixin for a widget whose `view` is drawn by a page.

    The saved output follows the panel: a page that displayed it replaces the old text with the new one.
    """

    view: Any
    shows: type
    """The class of the record that it shows."""
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

    def _plain_html(self) -> str:
        return str(self._saved)

    def _saved_html(self) -> str:
        """Return plain HTML for an output next to the live panel."""
        return as_saved(self._saved)

    def speak(self) -> None:
        """Set all texts in the current language."""
        raise NotImplementedError

    def speak_along(self) -> None:
        """Set all texts now, and after each change of language while it is open."""
        self.speak()
        _displayed.add(self)

    def close_parts(self, *parts: Any) -> None:
        """Close the widgets of its page, and stop translating it."""
        _displayed.discard(self)
        for widget in parts:
            widget.layout.close()  # a widget of its own, which closing its owner leaves behind
            widget.close()

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

        display(cls(record))

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
