"""What one process tells another: a question with all that it is about, and the answer."""

from __future__ import annotations

import io
import linecache
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch
from torch.nn.utils.parametrize import is_parametrized

from devwidget.capture.restore.settings.torch_settings import set_switches, switches_now
from devwidget.planning.child.tensors import Storages, described
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.schema.message import Message


class Letter(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes what a notebook has defined with its source, and tensors without values."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._storages = Storages()

    def reducer_override(self, obj: Any) -> Any:
        """How to make a tensor again, and a module that refuses to be pickled for its tensors' sake; the rest as always."""
        if isinstance(obj, torch.Tensor) and obj.layout == torch.strided and not obj.is_nested:
            return described(obj, self._storages)
        if isinstance(obj, torch.nn.Module) and is_parametrized(obj):
            return object.__new__, (type(obj),), vars(obj)
        return super().reducer_override(obj)


def write(question: Callable[..., Any], *about: Any) -> bytes:
    """A question, and how torch is switched here.

    Raises:
        DevwidgetError: if something of it cannot be written.
    """
    file = io.BytesIO()
    try:
        pickle.dump((sys.path, _cells(), switches_now()), file)
        Letter(file).dump((question, about))
    except Exception as error:  # of any class of the user's
        raise DevwidgetError(
            Message("the model cannot be sent to another process: {error}", error=error_text(error)),
            why=Message("virtual GPUs or real ones are in use here, and a plan needs virtual ones of its own"),
            instead=Message("plan first, then start GPUs"),
        ) from error
    return file.getvalue()


def answer(letter: bytes) -> bytes:
    """The answer to a question, or what was raised."""
    file = io.BytesIO(letter)
    sys.path[:], cells, switches = pickle.load(file)
    linecache.cache.update(cells)
    try:
        question, about = pickle.load(file)
        set_switches(switches)
        return bytes(cloudpickle.dumps((question(*about), None)))
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> bytes:
    """An exception that is raised again elsewhere; where it was raised here is lost on the way but for the text."""
    if not isinstance(error, DevwidgetError):
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
    try:
        return bytes(cloudpickle.dumps((None, error)))
    except Exception:  # an exception of the user's that holds what cannot be written
        return bytes(cloudpickle.dumps((None, DevwidgetError(error_text(error)))))


def read(letter: bytes) -> Any:
    """What was answered.

    Raises:
        Exception: if that was raised.
    """
    found, error = pickle.loads(letter)
    if error is not None:
        raise error
    return found


def _cells() -> dict[str, Any]:
    """The lines of the cells of a notebook, which are in no file."""
    return {name: entry for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}
