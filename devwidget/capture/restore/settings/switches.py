"""How settings are read and set, and how they are put back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.restore.undoing import Undoing


class Switch(NamedTuple):
    """One setting, and a word for it."""

    word: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]


class Settings:
    """What settings were, of those that have a value."""

    def __init__(self, switches: Iterable[Switch]) -> None:
        self._kept = list(_read_values(switches))

    def put_back(self, undoing: Undoing, count: int | None = None) -> None:
        """Set those that have another value now; all of them, or so many of the first."""
        for switch, before in self._kept[:count]:
            try:
                if switch.read() == before:
                    continue
            except (AttributeError, KeyError):  # virtual GPUs have ended meanwhile
                continue
            except Exception:  # torch refuses to tell where settings contradict each other
                pass
            undoing.attempt_step(switch.word, functools.partial(switch.write, before))


def _read_values(switches: Iterable[Switch]) -> Iterator[tuple[Switch, Any]]:
    for switch in switches:
        try:
            yield switch, switch.read()
        except Exception:  # this build of torch does not tell, a folder is deleted, a locale is not installed
            continue
