"""`torch.compile` beside the simulator: dynamo must not try to compile the mode itself.

torch wraps every mode against that, which imports dynamo and costs a microsecond per operator; here that is done when
somebody compiles something.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.simulator.dispatch_mode import VirtualMode
from devwidget.simulator.patching import Patches
from devwidget.simulator.valueless import ValuelessMode

RUN = "__torch_dispatch__"


def install(patches: Patches) -> None:
    """Watch `torch.compile`."""

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            hide_modes()
            return original(*args, **kwargs)

        return compile

    patches.wrap(torch, "compile", watched)
    patches.on_undo(show_modes)


_raw = {mode: vars(mode)[RUN] for mode in (VirtualMode, ValuelessMode)}


def hide_modes() -> None:
    """Have dynamo pass over the modes."""
    import torch._dynamo

    for mode, run in _raw.items():
        setattr(mode, RUN, torch._dynamo.disable(run, recursive=True))  # type: ignore[no-untyped-call]


def show_modes() -> None:
    """The modes as they are."""
    for mode, run in _raw.items():
        setattr(mode, RUN, run)
