"""The exceptions that devwidget raises for misuse: what happened, why, and what would have been right."""

from __future__ import annotations

import difflib
import importlib.util
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from devwidget.records.schema.message import Message, escape_paragraph, in_language


class DevwidgetError(Exception):
    """Misuse of devwidget. Nothing was changed when it is raised.

    It is said in the language of reports; `args` are English.

    Attributes:
        what: the fact, lower case.
        why: the reason; "" if the fact says it.
        instead: what would have been right, code where possible.
    """

    def __init__(self, what: str, *, why: str = "", instead: str = "") -> None:
        self.what = escape_paragraph(what)
        self.why = escape_paragraph(why)
        self.instead = escape_paragraph(instead)
        super().__init__("\n".join(self._list_parts()))

    def __str__(self) -> str:
        """What, why, and what would have been right."""
        return "\n".join(map(in_language, self._list_parts()))

    def _list_parts(self) -> Iterator[str]:
        yield self.what
        if self.why:
            yield Message("  why:  {why}", why=self.why)
        if self.instead:
            yield Message("  help: {instead}", instead=self.instead)


class BatchError(DevwidgetError):
    """The batch is missing, cannot be evaluated, or does not fit `forward`."""


class SimulationError(DevwidgetError):
    """Virtual GPUs cannot be started like this."""


class UnreadableError(DevwidgetError, ValueError):
    """A file is not what it was taken for."""


class UnknownNameError(DevwidgetError, ValueError):
    """A name that is none of those that there are."""


class MissingPackageError(DevwidgetError, ImportError):
    """A part of devwidget needs a package that is not installed; torch alone is enough for all others."""


class PlacementError(DevwidgetError):
    """`check` found something; the message is the report.

    Attributes:
        trace: the whole trace, also what does not fail; None after the error was pickled.
    """

    trace: Any = None


def require_package(name: str, purpose: str) -> str:
    """Where a package is, found without loading it.

    Args:
        name: as it is imported, and as pip calls it.
        purpose: what needs it.

    Raises:
        MissingPackageError: if it is not installed.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        what = Message("{purpose} needs the package `{name}`, which is not installed here", purpose=purpose, name=name)
        raise MissingPackageError(what, instead=f"pip install {name}")
    return found.origin


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
    return _format_argument(args[0]) if len(args) == 1 else f"({', '.join(map(_format_argument, args))})" if args else ""


def _format_argument(value: object) -> str:
    if issubclass(type(value), str):
        return str.__str__(value)
    return repr(value) if id(type(value)) in _PLAIN else f"<{vars(type)['__name__'].__get__(type(value))}>"


# Read past the class: its metaclass, or a `__getattribute__` of the user's, would be code of theirs that runs here.
_mro: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
_names: Callable[[type], Mapping[str, Any]] = vars(type)["__dict__"].__get__
_args: Callable[[BaseException], tuple[object, ...]] = vars(BaseException)["args"].__get__
# By id: to compare or hash a class asks its metaclass, which may be the user's too.
_PLAIN = frozenset(map(id, (str, int, float, bool, complex, bytes, type(None))))
"""Types whose `repr` is Python's own."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the known word that is closest, or ""."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return Message("; did you mean {word}?", word=repr(close[0])) if close else ""
