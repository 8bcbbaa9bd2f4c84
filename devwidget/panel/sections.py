"""What extras add to the panel of a model, and how `devwidget.show` opens other objects.

An extra names its modules in the slot `panel`. Each registers sections with `@section`, and functions that open the panel
of a record with `@opens_panel`. The scripts of a section add its page to `SECTIONS` of `static/sections.js`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from devwidget import extras

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget


class Section:
    """What an extra shows in one panel. Override what you need.

    Attributes:
        name: Name of the trait that it writes, as in its script.
        scripts: Its files, as `report.page.assets.files_of_extra` names them.
        methods: Names of its methods that the panel has too.
        panel: The panel that shows it.
    """

    name: ClassVar[str]
    scripts: ClassVar[tuple[str, ...]]
    methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, panel: DeviceWidget) -> None:
        self.panel = panel

    def send(self, content: Mapping[str, Any]) -> None:
        """Show content on the page."""
        self.panel.view.set_trait(self.name, dict(content))

    def send_live(self, content: Mapping[str, Any]) -> None:
        """Show content while a cell runs. Call it only from `sample`, because one thread writes live content."""
        self.panel.live.set_trait(self.name, dict(content))

    def follow(self) -> None:
        """Update after a cell, when the table shows the current model."""

    def draw(self) -> None:
        """Draw the section; called first, and when the language changes."""

    def sample(self) -> None:
        """Draw changes while a cell runs; called on a thread of its own."""

    def make_head(self) -> dict[str, Any]:
        """Return texts that replace texts of the panel's header."""
        return {}

    def answer_question(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a question of the page; None if it is for another section. The page shows exceptions."""
        return None

    def close(self) -> None:
        """Release everything when the panel closes."""


ModelOpener = Callable[[Any, Any, str], Any]
"""Opens the panel of a model, with an optimizer, at a tab; with the other arguments of `show`."""
Opener = Callable[[Any, ModelOpener], Any]
S = TypeVar("S", bound=type[Section])
F = TypeVar("F", bound=Opener)

_sections: list[type[Section]] = []
_openers: dict[type, Opener] = {}


def section(kind: S) -> S:
    """Show a section in every panel that opens from now on."""
    _sections.append(kind)
    return kind


def opens_panel(kind: type) -> Callable[[F], F]:
    """Register a function that opens the panel of a class for `devwidget.show`."""

    def register(opener: F) -> F:
        _openers[kind] = opener
        return opener

    return register


def load_sections() -> tuple[type[Section], ...]:
    """Load and return the sections of all extras."""
    extras.load_all("panel")
    return tuple(_sections)


def section_scripts() -> tuple[str, ...]:
    """Return the scripts of all sections."""
    return tuple(script for kind in load_sections() for script in kind.scripts)


def find_opener(value: object) -> Opener | None:
    """Return the function that opens the panel of an object; None for a model or an unknown class."""
    extras.load_all("panel")
    for kind in type(value).__mro__:
        for known, opener in _openers.items():
            if kind is known:  # a class of the user may have a hash of its own
                return opener
    return None
