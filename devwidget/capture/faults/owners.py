"""Find who keeps a tensor: registered, in a plain attribute, on a class, or as a global."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple

import torch
from torch import nn

from devwidget.capture.object_fields import class_name, class_values, is_among
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.snapshot.attribute_search import STANDARD, AttributeSearch
from devwidget.capture.snapshot.optimizer_state import attribute_tensors, optimizer_tensors
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.frames import modules_named
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import globals_used, locals_of, user_frame
from devwidget.capture.tensors import (
    is_optimizer,
    is_tensor,
    modules_in,
    own,
    own_parameters,
    own_tensors,
    registered_entries,
    tensors_below,
    walk_modules,
)
from devwidget.records.site import Site
from devwidget.records.trace import Held


class Owned(NamedTuple):
    """A tensor that a module holds.

    Attributes:
        path: path of the module.
        module: the module itself.
        how: as `Held.how` has it.
        name: how the module calls the tensor.
        tensor: the tensor.
        note: further remarks.
    """

    path: str
    module: nn.Module
    how: str
    name: str
    tensor: torch.Tensor
    note: str = ""

    def describe_holder(self) -> Held:
        """Describe the module as the holder."""
        kind = type(self.module)
        along = self.how == "attribute" and not self.note and _moves_along(kind)
        assigned = classes.attribute_assignment(kind, self.name)
        return Held(self.path, self.name, self.how, class_name(kind), assigned, note=self.note, moves_along=along)


def holder(tracker: ModuleTracker, frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """Return who keeps one of these tensors: a module of the model, else a global that a frame's code uses."""
    found = [owned for owned in _list_owned(tracker) if is_among(owned.tensor, family)]
    if not found:
        return in_optimizer(frames, family) or _held_by_name(frames, family)
    owned = next((each for each in found if each.tensor is family[0]), found[0])
    held = owned.describe_holder()
    if owned.how in ("parameter", "buffer"):
        return _add_sharing(tracker, frames, held, owned.tensor)
    return held


def in_optimizer(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """Return the optimizer whose `step` runs, if it keeps one of these in an attribute, or in an object or list of its
    state."""
    for frame in frames:
        optimizer = locals_of(frame).get("self")
        if is_optimizer(optimizer):
            for name, tensor in (*_tensors_in_state(optimizer), *attribute_tensors(optimizer)):
                if is_among(tensor, family):
                    return Held(None, name, "optimizer state", class_name(type(optimizer)))
    return None


def _tensors_in_state(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors inside objects and lists of the state. Tensors directly in the state move with it."""
    for path, tensor, _ in optimizer_tensors(optimizer, {}):
        name = path.partition("].")[2]
        if not name.isidentifier():
            yield name, tensor


def in_module_beside(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """Return the module outside of the model, such as a metric, that keeps one of these and moves it along with itself."""
    for name, whole in modules_named(frames):
        if not name:
            continue
        for path, module in walk_modules(whole):
            if not _moves_along(type(module)):
                continue
            for key, value in own(module).items():
                if is_among(value, family):
                    kept = ".".join(part for part in (name, path, key) if part)
                    owner, left_class = class_name(type(module)), class_name(type(whole))
                    return Held(None, kept, "attribute", owner, left_class=left_class, moves_along=True)
    return None


def _find_whole(frames: Sequence[FrameType], module: nn.Module, device: torch.device) -> nn.Module:
    """Return the module of a variable that contains this one and is on one device; the module itself if there is none."""
    for name, whole in modules_named(frames):
        if name and is_among(module, modules_in(whole)) and {tensor.device for tensor in tensors_below(whole)} == {device}:
            module = whole
    return module


def _moves_along(kind: type) -> bool:
    """Return whether a class overrides `_apply`."""
    return any(each == "_apply" for each, _ in class_values(kind, nn.Module))


def kept_by_user(tracker: ModuleTracker, frame: FrameType, birth: Birth) -> Held | None:
    """Return who keeps a tensor that outlives the step: an unregistered attribute, or a global used by this line's code."""
    family = [tensor for each in birth.iterate_chain() if (tensor := each()) is not None]
    user = user_frame(frame)
    held = holder(tracker, [] if user is None else [user], family)
    if held is None or held.how not in ("attribute", "class attribute", "global"):
        return None
    if held.how == "global" and user is not None and user.f_code.co_name == "<module>":
        return None  # its globals are the batch of this step
    return held


def unregistered_tensors(tracker: ModuleTracker) -> Iterator[Owned]:
    """Return tensors that the model's modules hold without registering them."""
    return (owned for owned in _list_owned(tracker) if owned.how == "attribute")


def registered_at(tracker: ModuleTracker, path: str) -> Site | None:
    """Return the user's line that gave a module of torch's own to the model."""
    modules, parts = dict(tracker.list_modules()), path.split(".") if path else []
    for depth in reversed(range(len(parts))):
        owner = modules.get(".".join(parts[:depth]))
        site = classes.find_filling(type(owner), parts[depth]) if owner is not None else None
        if site is not None and depth + 1 < len(parts):  # a container, to which other lines may add
            return statements.keeping_line(site.file, site.line, f"self.{parts[depth]}") or site
        if site is not None:
            return site
    return None


def find_built(tracker: ModuleTracker, frames: Iterable[FrameType], made: object) -> Site | None:
    """Return the line that built an optimizer or a wrapper: what a frame knows, else a line of its file or of the model's."""
    living = list(frames)
    found = find_construction(living, made)
    codes = [frame.f_code for frame in living]
    for _, module in tracker.list_modules():
        codes += [function.__code__ for function in classes.functions_of(type(module))]
    for file in dict.fromkeys(code.co_filename for code in codes):
        found = found or statements.made_by(file, class_name(type(made)))
    return found


def written_later(tracker: ModuleTracker, held: Held) -> Site | None:
    """Return the line after `__init__` that replaced a registered tensor, if that one alone is elsewhere."""
    module = module_at(tracker, held.module)
    if held.left_behind is not None or module is None:
        return None
    return classes.first_write(type(module), held.name)


def module_at(tracker: ModuleTracker, path: str | None) -> nn.Module | None:
    """Return the module of the model at a path."""
    return dict(tracker.list_modules()).get(path or "")


def _list_owned(tracker: ModuleTracker) -> Iterator[Owned]:
    named = list(tracker.list_modules())
    registered = set()
    for _, module in named:
        registered |= {id(module), *map(id, own_tensors(module).values())}
    search = AttributeSearch(lambda value: id(value) in registered)
    for path, module in named:
        yield from _owned_by(path, module, search)


def _owned_by(path: str, module: nn.Module, search: AttributeSearch) -> Iterator[Owned]:
    fields = own(module)
    buffers = dict(registered_entries(module, "_buffers"))
    for how, group in (("parameter", own_parameters(module)), ("buffer", buffers)):
        for name, tensor in group.items():
            if is_tensor(tensor):
                yield Owned(path, module, how, name, tensor)
    for name in search.find_candidates(fields, fields.keys() - STANDARD):  # what a hook keeps is the hook's
        if name in fields:
            for found in search.find_tensors(name, fields[name]):
                yield Owned(path, module, "attribute", *found)
    for name, tensor, _ in search.of_class(type(module)):
        yield Owned(path, module, "class attribute", name, tensor)


def _add_sharing(tracker: ModuleTracker, frames: Sequence[FrameType], held: Held, tensor: torch.Tensor) -> Held:
    """Add the other modules that share a registered tensor, and the module that was left behind."""
    paths = set()
    for path, module in tracker.list_modules():
        paths |= {f"{path}.{name}".strip(".") for name, value in own_tensors(module).items() if value is tensor}
    held = dataclasses.replace(held, shared=tuple(sorted(paths - {f"{held.module}.{held.name}".strip(".")})))
    found = _left_behind(tracker, held.module or "", tensor.device)
    if found is None:
        return held
    left, module = found
    is_root = is_among(module, [ref() for ref in tracker.roots])
    if is_root:
        module = _find_whole(frames, module, tensor.device)
    built = find_construction(frames, module)
    return dataclasses.replace(held, left_behind=left, left_class=class_name(type(module)), left_root=is_root, built=built)


def _left_behind(tracker: ModuleTracker, path: str, device: torch.device) -> tuple[str, nn.Module] | None:
    """Return the topmost module around `path` that is wholly on one device, which was not moved; None if even the module at
    `path` is not, or was filled afterwards.
    """
    modules = dict(tracker.list_modules())
    elsewhere = []
    for owner, module in modules.items():
        if any(tensor.device != device for tensor in own_tensors(module).values()):
            elsewhere.append(f"{owner}.")
    for top in sorted(modules, key=len):
        beginning = f"{top}." if top else ""
        if f"{path}.".startswith(beginning) and not any(owner.startswith(beginning) for owner in elsewhere):
            break
    else:
        return None
    if _is_filled_later(modules[top]):
        return None
    return top, modules[top]


def _is_filled_later(module: nn.Module) -> bool:
    """Return whether methods replace all tensors of a module, so that their device does not show where it was moved."""
    for _, part in walk_modules(module):
        if not all(classes.is_decided_later(type(part), name) for name in own_tensors(part)):
            return False
    return True


def _held_by_name(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    for frame in frames:
        for name, value in globals_used(frame).items():
            if is_among(value, family):
                site = statements.assignment(frame.f_code.co_filename, name, 1_000_000_000)
                return Held(None, name, "global", "", site or statements.cell_assignment(name))
    return None
