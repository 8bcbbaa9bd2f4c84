"""Keep exceptions of DataParallel workers with their frames. torch re-raises only their text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import dict_of
from devwidget.capture.patching.registry import everywhere, listen
from devwidget.capture.undo import Undo

_KEPT = "_devwidget_worker_error"


def keep_worker_errors(undo: Undo) -> None:
    """Attach the worker's exception to the exception that its caller gets."""
    listen(everywhere, torch_internals.ExceptionWrapper, "__init__", _keep_error, undo)
    listen(everywhere, torch_internals.ExceptionWrapper, "reraise", _attach_error, undo)


def worker_error(error: BaseException) -> BaseException | None:
    """Return the worker's exception behind an exception; None if there is none, or it was not watched."""
    kept = dict_of(error).get(_KEPT)
    if isinstance(kept, BaseException):
        return kept
    return None


def _keep_error(original: Callable[..., None], self: Any, exc_info: Any = None, where: str = "in background") -> None:
    error = sys.exception()
    original(self, exc_info, where)
    # The wrapper of a process is pickled; frames of a failed allocation would keep what filled the device.
    if where.startswith("in replica") and not isinstance(error, torch.OutOfMemoryError):
        vars(self)[_KEPT] = error


def _attach_error(original: Callable[..., None], self: Any) -> None:
    kept = vars(self).pop(_KEPT, None)
    try:
        original(self)
    except BaseException as error:
        if kept is not None:
            error.__dict__[_KEPT] = kept
        raise
