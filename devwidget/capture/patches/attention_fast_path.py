"""Fast paths: attention computes differently if torch's functions are overridden. Hide devwidget's modes from that check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.undo import Undo

_PLAIN = (torch.Tensor, nn.Parameter)


def fast_paths(state: RecordingState | None, undo: Undo) -> None:
    """Make `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` choose the same kernels as without a recording.

    Both choose by calling `torch.overrides.has_torch_function` under that name. Other kernels differ in the last bits.
    """
    undo.enter_context(make_patch(torch.overrides, "has_torch_function", _wrap_question))


def _wrap_question(original: Callable[[Iterable[Any]], bool]) -> Callable[[Iterable[Any]], bool]:
    def has_torch_function(relevant_args: Iterable[Any]) -> bool:
        modes = torch_internals.function_modes()
        args = tuple(relevant_args)
        if not modes or any(not type(mode).__module__.startswith("devwidget.capture") for mode in modes):
            return bool(original(args))  # also in threads that are not watched
        return any(_overrides_function(type(arg)) for arg in args)

    return has_torch_function


def _overrides_function(kind: type) -> bool:
    implementation = getattr(kind, "__torch_function__", None)
    return not any(kind is each for each in _PLAIN) and implementation not in (None, torch_internals.disabled_torch_function)
