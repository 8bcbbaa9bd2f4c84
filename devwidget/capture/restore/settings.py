"""How settings are read and put back; those of Python and NumPy that a step may change: environment, warnings, logging."""

from __future__ import annotations

import decimal
import gc
import locale
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.restore.undoing import NotRestored, Undoing
from devwidget.records.schema.message import Message


def _leave_changed(before: Any) -> None:
    """Name a setting that has another value.

    Raises:
        NotRestored: always.
    """
    raise NotRestored(Message("it has another value now"))


class Switch(NamedTuple):
    """One setting, and a word for it; without `write` it is only named."""

    word: str
    read: Callable[[], Any]
    write: Callable[[Any], Any] = _leave_changed

    def differs(self, before: Any) -> bool:
        """Whether it has another value now; one that torch refuses to tell, as it contradicts others, does."""
        try:
            return bool(self.read() != before)
        except (AttributeError, KeyError):  # virtual GPUs have ended meanwhile
            return False
        except Exception:
            return True


class Settings:
    """What settings were, of those that have a value."""

    def __init__(self, switches: Iterable[Switch]) -> None:
        self._before = list(_read_values(switches))

    def has_changed(self) -> bool:
        """Whether one has another value now."""
        return any(switch.differs(before) for switch, before in self._before)

    def put_back(self, undoing: Undoing, count: int | None = None) -> None:
        """Set those that have another value now; all of them, or so many of the first."""
        for switch, before in self._before[:count]:
            if switch.differs(before):
                undoing.attempt_step(switch.word, lambda write=switch.write, value=before: write(value))  # type: ignore[misc]


def _read_values(switches: Iterable[Switch]) -> Iterator[tuple[Switch, Any]]:
    for switch in switches:
        try:
            yield switch, switch.read()
        except Exception:  # this build of torch does not tell, a folder is deleted, a locale is not installed
            continue


_OURS = b"DEVWIDGET_" if os.supports_bytes_environ else "DEVWIDGET_"
"""Variables that simulations in other threads set and take back themselves."""


def process_settings() -> Iterator[Switch]:
    """Every one of them."""
    yield Switch("environment", _read_environment, _set_environment)
    yield Switch("current folder", os.getcwd, os.chdir)
    yield Switch("sys.path", lambda: list(sys.path), lambda kept: sys.path.__setitem__(slice(None), kept))
    yield Switch("sys.excepthook", lambda: sys.excepthook, lambda kept: setattr(sys, "excepthook", kept))
    yield Switch("switch interval", sys.getswitchinterval)
    yield Switch("thresholds of the garbage collector", gc.get_threshold)
    yield Switch("logging", lambda: (logging.root.level, logging.root.disabled, tuple(logging.root.handlers)))
    yield Switch("decimal context", lambda: repr(decimal.getcontext()))
    yield Switch("locale", lambda: locale.setlocale(locale.LC_ALL))
    yield _warning_filters()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        yield Switch("numpy.errstate", numpy.geterr, lambda kept: numpy.seterr(**kept))
        yield Switch("printing of numpy", numpy.get_printoptions, lambda kept: numpy.set_printoptions(**kept))


def _read_environment() -> dict[Any, Any]:
    """Undecoded: that is a hundred times as fast."""
    variables: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
    return {name: value for name, value in list(variables.items()) if not name.startswith(_OURS)}


def _set_environment(kept: dict[Any, Any]) -> None:
    """Through `os.environ`, which tells C too."""
    read, now = os.environ.decodevalue, _read_environment()
    for name in now.keys() - kept.keys():
        del os.environ[read(name)]
    for name, value in kept.items():
        if now.get(name) != value:
            os.environ[read(name)] = read(value)


def _warning_filters() -> Switch:
    """Entries of the list that is in place: another one is of a block, maybe in another thread, which ends by itself."""
    filters = warnings.filters

    def write(kept: list[Any]) -> None:
        if warnings.filters is filters:
            filters[:] = kept  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    return Switch("warning filters", lambda: list(filters), write)
