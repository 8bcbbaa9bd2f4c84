"""The exceptions that devwidget raises for misuse, and the text of any other exception."""

from __future__ import annotations

import importlib.util
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from devwidget.records.schema.message import Message
from devwidget.records.schema.misuse import ArgumentError as ArgumentError
from devwidget.records.schema.misuse import DevwidgetError as DevwidgetError
from devwidget.records.schema.misuse import MissingFileError as MissingFileError
from devwidget.records.schema.misuse import UnwritableError as UnwritableError
from devwidget.records.schema.misuse import nearest as nearest


class BatchError(DevwidgetError):
    """The batch is missing, cannot be evaluated, or does not fit `forward`."""


class SimulationError(DevwidgetError):
    """Virtual GPUs cannot be started like this."""


class UnreadableError(DevwidgetError, ValueError):
    """A file does not have the expected content."""

    def __init__(self, what: str, *, why: str = "", instead: str = "") -> None:
        super().__init__(what, why=why, instead=instead or _OPENED)


_OPENED = Message("a file from `.save(path)`, or torch's memory snapshot, profile or flight-recorder dumps")


class UnknownNameError(DevwidgetError, ValueError):
    """A name is unknown."""


class MissingPackageError(DevwidgetError, ImportError):
    """A part of devwidget needs a package that is not installed. All other parts need torch alone."""


class PlacementError(DevwidgetError):
    """`check`, or a watched trainer, found something. The message is the report.

    Attributes:
        trace: the whole trace, including what does not fail; None for a trainer, and after the error was pickled.
        run: the whole run of a trainer, as a `WatchedRun`; None for `check`, and after the error was pickled.
    """

    trace: Any = None
    run: Any = None


def require_package(name: str, purpose: str) -> str:
    """Return where a package is installed, without loading it.

    Args:
        name: its name for `import` and for pip.
        purpose: what needs it.

    Raises:
        MissingPackageError: if it is not installed.
    """
    origin = _find_origin(name)
    if origin is None:
        what = Message("{purpose} needs the package `{name}`, which is not installed here", purpose=purpose, name=name)
        raise MissingPackageError(what, instead=f"pip install {name}")
    return origin


def is_installed(name: str) -> bool:
    """Return whether a package is installed, without loading it."""
    return _find_origin(name) is not None


def _find_origin(name: str) -> str | None:
    found = importlib.util.find_spec(name)
    if found is not None:
        return found.origin
    return None


def error_text(error: BaseException) -> str:
    """Return `ErrorType: message` of any exception. A user's `__str__`, which may raise, is never run.

    If a class outside of Python defines the text, the message is built from the stored arguments.
    """
    name = str.__str__(vars(type)["__name__"].__get__(type(error)))
    return f"{name}: {message(error)}"


def of_worker(text: str) -> tuple[str, str]:
    """Return `ErrorType: message` of an error that a worker of DataParallel or a loader raised, and where it was raised.

    `("ValueError: too few rows", "in replica 1 on device 1")`; for another error the text itself, and "".
    """
    place, told, trace = text.partition("Original Traceback (most recent call last):")
    caught = re.search(r"Caught \w+ (in (?:replica \d+ on device|DataLoader worker process) \d+)", place)
    if not told or caught is None:
        return text, ""
    rows = trace.strip("\n").split("\n")
    frames = [at for at, row in enumerate(rows) if row[:1].isspace()]  # the unindented text after them is the message
    return "\n".join(rows[frames[-1] + 1 :] if frames else rows).strip(), caught[1]


def message(error: BaseException) -> str:
    """Return the message of an exception, as `error_text` does."""
    kind = type(error)
    args: tuple[object, ...] = _args(error)
    writer = next(names["__str__"] for names in map(_names, _mro(kind)) if "__str__" in names)
    if type(writer) is types.WrapperDescriptorType and all(id(type(arg)) in _PLAIN for arg in args):
        return str(writer(error))
    if len(args) == 1:
        return _format_argument(args[0])
    if args:
        return f"({', '.join(map(_format_argument, args))})"
    return ""


def _format_argument(value: object) -> str:
    if issubclass(type(value), str):
        return str.__str__(value)
    if id(type(value)) in _PLAIN:
        return repr(value)
    return f"<{vars(type)['__name__'].__get__(type(value))}>"


# Read past the class: its metaclass, or a `__getattribute__` of the user's, would be code of theirs that runs here.
_mro: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
_names: Callable[[type], Mapping[str, Any]] = vars(type)["__dict__"].__get__
_args: Callable[[BaseException], tuple[object, ...]] = vars(BaseException)["args"].__get__
# By id: to compare or hash a class asks its metaclass, which may be the user's too.
_PLAIN = frozenset(map(id, (str, int, float, bool, complex, bytes, type(None))))
"""Types whose `repr` is Python's own."""
