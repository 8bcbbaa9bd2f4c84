"""What autograd keeps for backward, read from its graph without unpacking anything."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from types import FrameType, TracebackType
from typing import Any

import torch

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import is_own, locals_of
from devwidget.capture.tensors import tensors_in

_PREFIX = "_raw_saved_"
_names: MutableMapping[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def kept_for_backward(tensors: Iterable[torch.Tensor], known: Iterable[Any] = ()) -> Iterator[torch.Tensor]:
    """Tensors saved in the graph behind some results, but for what lies at and behind nodes that are known.

    `SavedTensor.data` is what lies there: reading it runs no hook (a checkpoint would compute its forward again), and
    does not ask whether the tensor was changed meanwhile.
    """
    todo = [node for tensor in tensors if (node := tensor.grad_fn) is not None]
    seen: set[Any] = set(known)  # holds the nodes, whose ids would be used again
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        for name in _saved_names(node):
            saved = getattr(node, name)
            for each in saved if is_a(saved, (tuple, list)) else (saved,):
                yield from tensors_in(_saved_data(each), depth=2)
        todo.extend(before for before, _ in node.next_functions if before is not None)


def _saved_names(node: Any) -> tuple[str, ...]:
    kind = type(node)
    names = _names.get(kind)
    if names is None:
        names = _names[kind] = tuple(name for name in dir(kind) if name.startswith(_PREFIX))
    return names


def _saved_data(saved: Any) -> Any:
    try:
        return saved.data
    except (RuntimeError, AttributeError):  # backward has let it go, or this torch cannot tell
        return None


def tensors_of_frames(trace: TracebackType | None) -> Iterator[torch.Tensor]:
    """Tensors in the variables of the frames that an exception came through: what still lives of a failed forward."""
    while trace is not None:
        frame: FrameType = trace.tb_frame
        if not is_own(frame.f_code.co_filename):
            yield from tensors_in(list(locals_of(frame).values()), depth=2)
        trace = trace.tb_next
