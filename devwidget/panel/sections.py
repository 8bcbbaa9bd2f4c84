"""What extras add to the panel of a model, and how `devwidget.show` opens what is no model.

An extra names its modules in the slot `panel`. Each registers sections, by `@section`, and functions that open the panel of a
record, by `@opens_panel`. The scripts of a section add its other half to `SECTIONS` of `static/sections.js`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from devwidget import extras
from devwidget.panel.actions import Panel


class Section:
    """What an extra shows in one panel; a subclass overrides what it needs.

    Attributes:
        name: of the state of the page that it writes, as in its script.
        scripts: its files, as `report.page.assets.files_of_extra` names them.
        methods: names of its methods that the panel has too.
        panel: where it is shown.
    """

    name: ClassVar[str]
    scripts: ClassVar[tuple[str, ...]]
    methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, panel: Panel) -> None:
        self.panel = panel

    def send(self, content: Mapping[str, Any]) -> None:
        """Have the page show this."""
        self.panel.view.set_trait(self.name, dict(content))

    def send_live(self, content: Mapping[str, Any]) -> None:
        """Have the page show this while a cell runs; called by `sample` alone, because one thread writes what is live."""
        self.panel.live.set_trait(self.name, dict(content))

    def follow(self) -> None:
        """Look again at what is shown; called after each cell, when the table of the model is that of now."""

    def draw(self) -> None:
        """Draw what is shown; called at first, and when the language of reports is another one."""

    def sample(self) -> None:
        """Draw what a running cell has changed; called on a thread of its own."""

    def make_head(self) -> dict[str, Any]:
        """Return what stands in the header of the panel instead of what the core says there."""
        return {}

    def answer_question(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a question of the page; None if it is for somebody else. What is raised is shown on the page."""
        return None

    def close(self) -> None:
        """Let go of everything; the panel is closed."""


class ModelOpener(Protocol):
    """How the panel of a model is opened, with what else `show` was given."""

    def __call__(self, model: Any, optimizer: Any, opens: str) -> Any:
        """Open it at a tab."""


Opener = Callable[[Any, ModelOpener], Any]
S = TypeVar("S", bound=type[Section])
F = TypeVar("F", bound=Opener)

_sections: list[type[Section]] = []
_openers: dict[type, Opener] = {}


def section(kind: S) -> S:
    """Show a section in each panel that is opened from now on."""
    _sections.append(kind)
    return kind


def opens_panel(kind: type) -> Callable[[F], F]:
    """Have `devwidget.show` call a function for what is of this class, with a way to open the panel of a model."""

    def register(opener: F) -> F:
        _openers[kind] = opener
        return opener

    return register


def load_sections() -> tuple[type[Section], ...]:
    """Load the sections of all extras."""
    extras.load_all("panel")
    return tuple(_sections)


def section_scripts() -> tuple[str, ...]:
    """Name the scripts of all sections."""
    return tuple(script for kind in load_sections() for script in kind.scripts)


def find_opener(value: object) -> Opener | None:
    """Find how an extra opens the panel of something; None for a model, and for what nobody knows."""
    extras.load_all("panel")
    for kind in type(value).__mro__:
        for known, opener in _openers.items():
            if kind is known:  # a class of the user may have a hash of its own
                return opener
    return None
