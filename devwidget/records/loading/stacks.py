"""Read the recorded stack of an allocation: the user's line, the modules around it, and the part of the step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.site import Phase, Site, cell_label

_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3\.\d+)[/\\]|^<(frozen|__|eval_with)|^torch[/\\]")
_MODULE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py$")
_LOSS = re.compile(r"torch[/\\]nn[/\\](modules[/\\]loss|functional)\.py$")
_OPTIMIZER = re.compile(r"torch[/\\]optim[/\\]")
_AUTOGRAD = re.compile(r"torch[/\\](autograd[/\\]|_tensor\.py$)")
_ENGINE = "torch::autograd::"
_PLACING = frozenset({"_apply", "to", "cuda", "load_state_dict", "__init__", "to_empty"})


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack.

    Attributes:
        phase: the part of the step.
        module: files of the `forward` functions of the user's modules, the outermost first, `net/block`; None without one.
        site: the innermost line of the user.
    """

    phase: Phase
    module: str | None
    site: Site | None


# Autograd's threads have no Python stack, and all others that allocate do.
NO_STACK = Stack("backward", None, None)


def read_stack(frames: Sequence[dict[str, Any]]) -> Stack:
    """Read frames, innermost first as torch writes them: `filename`, `line` and `name`."""
    _check_frames(frames)
    users = _select_users(frames)
    python = users or any(frame["filename"].endswith(".py") for frame in frames)
    if not python:
        return NO_STACK
    forwards = [frame for frame in reversed(users) if frame["name"].rpartition(".")[2] == "forward"]
    if forwards:
        module = "/".join(dict.fromkeys(map(_label_module, forwards)))
    else:
        module = None
    return Stack(_infer_phase(frames), module, next(iter(users_sites(frames)), None))


def _check_frames(frames: Sequence[dict[str, Any]]) -> None:
    for at, frame in enumerate(frames):
        if not (type(frame.get("filename")) is type(frame.get("name")) is str and type(frame.get("line")) is int):
            raise Unexpected("a frame with `filename`, `line` and `name`", frame, path=f"frames[{at}]")


def users_sites(frames: Sequence[dict[str, Any]]) -> Iterator[Site]:
    """Yield the user's lines, innermost first."""
    return (Site(frame["filename"], max(frame["line"], 1), "", frame["name"]) for frame in _select_users(frames))


def _select_users(frames: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame for frame in frames if _is_users(frame["filename"])]


def _is_users(file: str) -> bool:
    return bool(cell_label(file)) or (file.endswith(".py") and not _LIBRARY.search(file))


def _names_loss(file: str, name: str) -> bool:
    return "loss" in file or "loss" in name or name == "cross_entropy"


def _infer_phase(frames: Sequence[dict[str, Any]]) -> Phase:
    """Return the outermost phase that a library function belongs to. A loss counts if no module calls it."""
    names = [(frame["filename"], frame["name"].rpartition(".")[2]) for frame in frames]
    if any(_OPTIMIZER.search(file) for file, _ in names):
        return "optimizer"
    if any(_ENGINE in name or (name == "backward" and _AUTOGRAD.search(file)) for file, name in names):
        return "backward"
    calls = sum(name == "_call_impl" and _MODULE.search(file) is not None for file, name in names)
    if calls <= 1 and any(_LOSS.search(file) and _names_loss(file, name) for file, name in names):
        return "loss"
    if calls:
        return "forward"
    if any(_MODULE.search(file) and name in _PLACING for file, name in names):
        return "build"
    return "other"


def _label_module(frame: dict[str, Any]) -> str:
    """Return `Block` for `Block.forward` if the name is qualified, else the file."""
    qualified = frame["name"].rpartition(".")[0]
    return qualified or re.split(r"[/\\]", frame["filename"])[-1].removesuffix(".py")
