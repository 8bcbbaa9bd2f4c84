"""Read and restore settings, among them Python settings that a step may change: folder, paths, warnings."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.restore.undoing import Undoing


class Switch(NamedTuple):
    """One setting and its name."""

    word: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]

    def differs(self, before: Any) -> bool:
        """Return whether its value has changed. A setting that torch refuses to read, because it conflicts with others, has."""
        try:
            return bool(self.read() != before)
        except (AttributeError, KeyError):  # virtual GPUs have ended meanwhile
            return False
        except Exception:
            return True


class Settings:
    """The values of settings that have one."""

    def __init__(self, switches: Iterable[Switch]) -> None:
        self._before = list(_read_values(switches))

    def has_changed(self) -> bool:
        """Return whether any value has changed."""
        return any(switch.differs(before) for switch, before in self._before)

    def put_back(self, undoing: Undoing) -> None:
        """Restore the changed ones."""
        for switch, before in self._before:
            if switch.differs(before):
                undoing.attempt_step(switch.word, functools.partial(switch.write, before))


def _read_values(switches: Iterable[Switch]) -> Iterator[tuple[Switch, Any]]:
    for switch in switches:
        try:
            yield switch, switch.read()
        except Exception:  # this build of torch does not tell, a folder is deleted
            continue


def process_settings() -> tuple[Switch, ...]:
    """Return the settings of Python that a step may change."""
    return (
        Switch("current folder", os.getcwd, os.chdir),
        Switch("sys.path", lambda: list(sys.path), lambda kept: sys.path.__setitem__(slice(None), kept)),
        _warning_filters(),
    )


def _warning_filters() -> Switch:
    """Return the filters in the current list. Another list belongs to a block, maybe in another thread, which ends by
    itself."""
    filters = warnings.filters

    def write(kept: list[Any]) -> None:
        if warnings.filters is filters:
            filters[:] = kept  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    return Switch("warning filters", lambda: list(filters), write)
