"""The exceptions that devwidget raises for misuse, and the words of any other."""

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
    """A file is not what it was taken for."""

    def __init__(self, what: str, *, why: str = "", instead: str = "") -> None:
        super().__init__(what, why=why, instead=instead or _OPENED)


_OPENED = Message(
    "what `.save(path)` has written; a memory snapshot, a profile or dumps of the flight recorder, written by torch"
)


class UnknownNameError(DevwidgetError, ValueError):
    """A name that is none of those that there are."""


class MissingPackageError(DevwidgetError, ImportError):
    """A part of devwidget needs a package that is not installed; torch alone is enough for all others."""


class PlacementError(DevwidgetError):
    """`check`, or a trainer that is watched, found something; the message is the report.

    Attributes:
        trace: the whole trace, also what does not fail; None for a trainer, and after the error was pickled.
        run: the whole run of a trainer, as a `WatchedRun`; None for `check`, and after the error was pickled.
    """

    trace: Any = None
    run: Any = None


def require_package(name: str, purpose: str) -> str:
    """Where a package is, found without loading it.

    Args:
        name: as it is imported, and as pip calls it.
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
    """Whether a package can be loaded; found without loading it."""
    return _find_origin(name) is not None


def _find_origin(name: str) -> str | None:
    found = importlib.util.find_spec(name)
    if found is not None:
        return found.origin
    return None


def error_text(error: BaseException) -> str:
    """`ErrorType: message` of any exception, also of one whose `__str__` raises: the user's own is never run.

    The message is made of what Python itself has kept, the arguments, where anything but Python would have to write it.
    """
    name = str.__str__(vars(type)["__name__"].__get__(type(error)))
    return f"{name}: {message(error)}"


def of_worker(text: str) -> tuple[str, str]:
    """`ErrorType: message` of an error that DataParallel brought home with its whole traceback, and where it was raised.

    `("ValueError: too few rows", "in replica 1 on device 1")`; of another error the text itself, and "".
    """
    place, told, trace = text.partition("Original Traceback (most recent call last):")
    caught = re.search(r"Caught \w+ (in replica \d+ on device \d+)", place)
    if not told or caught is None:
        return text, ""
    rows = trace.strip("\n").split("\n")
    frames = [at for at, row in enumerate(rows) if row[:1].isspace()]  # what stands at the margin after them is the message
    return "\n".join(rows[frames[-1] + 1 :] if frames else rows).strip(), caught[1]


def message(error: BaseException) -> str:
    """What an exception says, as for `error_text`."""
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
