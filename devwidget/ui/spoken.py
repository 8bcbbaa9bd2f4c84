"""Widgets on a page say everything again when reports change their language."""

from __future__ import annotations

import weakref
from typing import Protocol

from devwidget.language.speaking import follow


class Spoken(Protocol):
    """A widget with words."""

    def speak(self) -> None:
        """Say everything in the language of reports."""


_widgets: weakref.WeakSet[Spoken] = weakref.WeakSet()


def speak_along(widget: Spoken) -> None:
    """Let a widget say everything again after each change, for as long as somebody has it."""
    _widgets.add(widget)


def fall_silent(widget: Spoken) -> None:
    """Leave a closed widget alone."""
    _widgets.discard(widget)


def _speak() -> None:
    for widget in list(_widgets):
        widget.speak()


follow(_speak)
