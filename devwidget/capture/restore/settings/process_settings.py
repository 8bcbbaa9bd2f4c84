"""Settings of Python and NumPy that a step may change: environment, folder, paths, warnings, what becomes of odd numbers."""

from __future__ import annotations

import locale
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from devwidget.capture.restore.settings.switches import Switch

_OURS = b"DEVWIDGET_" if os.supports_bytes_environ else "DEVWIDGET_"
"""Variables that simulations in other threads set and take back themselves."""


def process_settings() -> Iterator[Switch]:
    """Every one of them."""
    yield Switch("environment", _environment, _set_environment)
    yield Switch("current folder", os.getcwd, os.chdir)
    yield Switch("sys.path", lambda: list(sys.path), lambda kept: sys.path.__setitem__(slice(None), kept))
    yield Switch("switch interval", sys.getswitchinterval, sys.setswitchinterval)
    yield Switch("locale", lambda: locale.setlocale(locale.LC_ALL), lambda kept: locale.setlocale(locale.LC_ALL, kept))
    yield _warning_filters()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        yield Switch("numpy.errstate", numpy.geterr, lambda kept: numpy.seterr(**kept))
        yield Switch("printing of numpy", numpy.get_printoptions, lambda kept: numpy.set_printoptions(**kept))


def _environment() -> dict[Any, Any]:
    """Undecoded: that is a hundred times as fast."""
    variables: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
    return {name: value for name, value in list(variables.items()) if not name.startswith(_OURS)}


def _set_environment(kept: dict[Any, Any]) -> None:
    """Through `os.environ`, which tells C too."""
    read, now = os.environ.decodevalue, _environment()
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
