"""Variables of a frame: what its code calls a value."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.call_site import locals_of, user_frame
from devwidget.capture.places import own_tensors

MOST_MODULES = 10_000


def name_in(frame: FrameType, matches: Any) -> str:
    """A variable of a frame, an attribute of one or an item in one, whose value matches; the simplest there is."""
    used = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    scopes: dict[str, Any] = {**used, **locals_of(frame)}
    for name, value in scopes.items():
        if matches(value):
            return name
    for name, value in scopes.items():
        for suffix, part in _parts(value):
            if matches(part):
                return name + suffix
    for name, value in scopes.items():
        for suffix, tensor in deep_tensors(value) if isinstance(value, nn.Module) else ():
            if matches(tensor):
                return name + suffix
    return ""


def deep_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a module and of those below it, as code would write them: `.layers[0].weight`."""
    waiting: list[tuple[str, nn.Module]] = [("", module)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_MODULES:
        path, owner = waiting.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        yield from ((f"{path}.{name}", tensor) for name, tensor in own_tensors(owner).items() if name.isidentifier())
        for name, child in owner._modules.items():
            step = f"[{name}]" if name.isdigit() else f".{name}" if name.isidentifier() else ""
            if step and child is not None:
                waiting.append((path + step, child))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes of a module and items of a container, one level deep."""
    if isinstance(value, nn.Module):
        for mapping in (value._parameters, value._buffers, value.__dict__):
            yield from ((f".{name}", part) for name, part in mapping.items() if isinstance(part, torch.Tensor))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items())[:64] if isinstance(part, torch.Tensor))
    elif type(value) in (list, tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value[:64]) if isinstance(part, torch.Tensor))


def lookup(frame: FrameType, name: str) -> Any:
    """The value of a name, as the frame's code finds it; None if it has none."""
    return locals_of(frame).get(name, frame.f_globals.get(name))


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames of user code at and above a frame, innermost first."""
    while (frame := user_frame(frame)) is not None:
        yield frame
        frame = frame.f_back
