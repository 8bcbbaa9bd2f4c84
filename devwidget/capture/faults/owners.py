"""Owners: who keeps a tensor, as a registered one, in a plain attribute, on a class, or under a global name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType

import torch
from torch import nn

from devwidget.capture.modules import is_module, own, own_parameters, own_tensors, registered_entries, walk_modules
from devwidget.capture.object_fields import class_name, class_values, copy_items, dict_of, is_a, items_of, mro_of
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.snapshot.attribute_search import STANDARD, AttributeSearch
from devwidget.capture.snapshot.optimizer_state import attribute_tensors, optimizer_tensors
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.call_sites import globals_used, locals_of
from devwidget.capture.source_code.classes import functions_in
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.source_files import ClassName
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.tensors import is_tensor
from devwidget.records.site import Site
from devwidget.records.trace import Held

_Owned = tuple[str, nn.Module, str, str, torch.Tensor, str]
_TENSOR = 4


def holder(tracker: ModuleTracker, frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """Who keeps one of these tensors: a module of the model, else a global that a frame's code uses."""
    found = [owned for owned in _owned(tracker) if any(owned[_TENSOR] is member for member in family)]
    for path, module, how, name, tensor, note in sorted(found, key=lambda owned: owned[_TENSOR] is not family[0]):
        kind = type(module)
        along = how == "attribute" and not note and _moves_along(kind)
        held = Held(path, name, how, class_name(kind), _assigned_in_class(kind, name), note=note, moves_along=along)
        return _add_sharing(tracker, frames, held, tensor) if how in ("parameter", "buffer") else held
    return in_optimizer(frames, family) or _held_by_name(frames, family)


def in_optimizer(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """The optimizer whose `step` runs, if it keeps one of these in an attribute, or in an object or a list of its state."""
    for frame in frames:
        optimizer = locals_of(frame).get("self")
        if not is_a(optimizer, torch.optim.Optimizer):
            continue
        states = ((name.partition("].")[2], tensor) for name, tensor, _ in optimizer_tensors(optimizer, {}))
        inside = ((name, tensor) for name, tensor in states if not name.isidentifier())  # what stands there itself is moved
        for name, tensor in (*inside, *attribute_tensors(optimizer)):
            if any(tensor is member for member in family):
                return Held(None, name, "optimizer state", class_name(type(optimizer)))
    return None


def in_module_beside(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    """The module beside the model, such as a metric, that keeps one of these and moves it along where it is moved itself."""
    for name, whole in _modules_named(frames):
        for path, module in walk_modules(whole):
            for key, tensor in own(module).items() if _moves_along(type(module)) else ():
                if any(tensor is member for member in family):
                    kept = ".".join(part for part in (name, path, key) if part)
                    kinds = class_name(type(module)), class_name(type(whole))
                    return Held(None, kept, "attribute", kinds[0], left_class=kinds[1], moves_along=True)
    return None


def _modules_named(frames: Iterable[FrameType]) -> Iterator[tuple[str, nn.Module]]:
    """The modules that the variables of frames are, and those in the fields of an object that is none."""
    for frame in frames:
        for name, value in {**globals_used(frame), **locals_of(frame)}.items():
            if value is torch:  # thousands of names, none of them a module of the user's
                continue
            fields = [(name, value)] if is_module(value) else [(f"{name}.{key}", f) for key, f in copy_items(dict_of(value))]
            yield from ((key, field) for key, field in fields if is_module(field) and key != "self")


def _moves_along(kind: type) -> bool:
    """Whether a class has an `_apply` of its own."""
    return any(each == "_apply" for each, _ in class_values(kind, nn.Module))


def kept_by_user(tracker: ModuleTracker, frame: FrameType, birth: Birth) -> Held | None:
    """Who keeps a tensor that outlives the step: an unregistered attribute, or a global that this very line's code uses."""
    family = [tensor for each in birth.iterate_chain() if (tensor := each()) is not None]
    user = user_frame(frame)
    held = holder(tracker, [] if user is None else [user], family)
    if held is None or (held.how == "global" and user is not None and user.f_code.co_name == "<module>"):
        return None  # the loop of a script or notebook: its globals are this step's batch
    return held if held.how in ("attribute", "class attribute", "global") else None


def unregistered_tensors(tracker: ModuleTracker) -> Iterator[tuple[nn.Module, Held, torch.Tensor]]:
    """Tensors that the model's modules hold without registering them."""
    for path, module, name, tensor, note in plain_tensors(tracker):
        assigned = _assigned_in_class(type(module), name)
        yield module, Held(path, name, "attribute", class_name(type(module)), assigned, note=note), tensor


def plain_tensors(tracker: ModuleTracker) -> Iterator[tuple[str, nn.Module, str, torch.Tensor, str]]:
    """The same as path and module, how the module calls it, the tensor, and a note."""
    for path, module, how, name, tensor, note in _owned(tracker):
        if how == "attribute":
            yield path, module, name, tensor, note


def registered_at(tracker: ModuleTracker, path: str) -> Site | None:
    """The user's line that gave a module of torch's own to the model."""
    modules, parts = dict(tracker.list_modules()), path.split(".") if path else []
    owners = ((modules.get(".".join(parts[:depth])), parts[depth]) for depth in reversed(range(len(parts))))
    sites = (_in_class_of(owner, classes.find_filling, name) for owner, name in owners if owner is not None)
    return next((site for site in sites if site is not None), None)


def written_later(tracker: ModuleTracker, held: Held) -> Site | None:
    """The line after `__init__` that put another tensor in the place of a registered one, which alone is elsewhere."""
    module = dict(tracker.list_modules()).get(held.module or "") if held.left_behind is None else None
    return _in_class_of(module, classes.first_write, held.name) if module is not None else None


def in_class(kind: type, look: Callable[[str, ClassName], Site | None]) -> Site | None:
    """What `look(filename, class)` finds in the source of a user's class or of its bases."""
    for base in mro_of(kind):
        lines: dict[str, list[int]] = {}
        for function in functions_in(base):
            lines.setdefault(function.__code__.co_filename, []).append(function.__code__.co_firstlineno)
        for filename, inside in lines.items():
            site = look(filename, ClassName(class_name(base), tuple(inside)))
            if site is not None:
                return site
    return None


def _in_class_of(module: nn.Module, look: Callable[..., Site | None], attribute: str) -> Site | None:
    return in_class(type(module), functools.partial(look, attribute=attribute))


def _assigned_in_class(kind: type, name: str) -> Site | None:
    """The line of the class, or of a class that it derives from, that stores an attribute."""
    attribute = name.split("[")[0].split(".")[0]
    return in_class(kind, lambda filename, owner: classes.attribute_assignment(filename, owner, attribute))


def _owned(tracker: ModuleTracker) -> Iterator[_Owned]:
    """Path and module of each holder, how it holds each of its tensors, under which name, the tensor, and a note."""
    named = list(tracker.list_modules())
    registered = {id(part) for _, m in named for part in (m, *own_tensors(m).values())}
    search = AttributeSearch(lambda value: id(value) in registered)
    for path, module in named:
        yield from ((path, module, *found) for found in _owned_by(module, search))


def _owned_by(module: nn.Module, search: AttributeSearch) -> Iterator[tuple[str, str, torch.Tensor, str]]:
    copied = dict(items_of(own(module).get("_former_parameters")) or ())  # a replica of DataParallel keeps its copies there
    groups = (
        ("parameter", own_parameters(module)),
        ("buffer", dict(registered_entries(module, "_buffers"))),
        ("parameter", copied),
    )
    for how, group in groups:
        yield from ((how, name, tensor, "") for name, tensor in group.items() if is_tensor(tensor))
    fields = own(module)
    for name in search.find_candidates(fields, fields.keys() - STANDARD):  # what a hook keeps is the hook's
        if name not in copied and name in fields:
            yield from (("attribute", *found) for found in search.find_tensors(name, fields[name]))
    for name, value in class_values(type(module), nn.Module):
        if is_a(value, (torch.Tensor, list, tuple, dict)):
            yield from (("class attribute", *found) for found in search.find_tensors(name, value))


def _add_sharing(tracker: ModuleTracker, frames: Sequence[FrameType], held: Held, tensor: torch.Tensor) -> Held:
    """A registered tensor with the other modules that share it, and the module that was left behind."""
    paths = {
        f"{path}.{name}".strip(".")
        for path, module in tracker.list_modules()
        for name, value in own_tensors(module).items()
        if value is tensor
    }
    shared = tuple(sorted(paths - {f"{held.module}.{held.name}".strip(".")}))
    left = _left_behind(tracker, held.module or "", tensor.device)
    module = next((module for path, module in tracker.list_modules() if path == left), None)
    if module is None:
        return dataclasses.replace(held, shared=shared)
    is_root = any(ref() is module for ref in tracker.roots)
    module = _find_whole(frames, module, tensor.device) if is_root else module
    return dataclasses.replace(
        held,
        shared=shared,
        left_behind=left,
        left_class=class_name(type(module)),
        left_root=is_root,
        built=find_construction(frames, module),
    )


def _find_whole(frames: Sequence[FrameType], module: nn.Module, device: torch.device) -> nn.Module:
    """The module of a variable of the user that has this one as a part, and nothing elsewhere: its methods were called."""
    for _, each in _modules_named(frames):
        parts = [part for _, part in walk_modules(each)]
        if any(part is module for part in parts) and all(
            t.device == device for part in parts for t in own_tensors(part).values()
        ):
            module = each
    return module


def _left_behind(tracker: ModuleTracker, path: str, device: torch.device) -> str | None:
    """The topmost module around `path` that has nothing on another device, which the user forgot to move; None if even
    the module at `path` has."""
    elsewhere = {
        owner
        for owner, module in tracker.list_modules()
        if any(tensor.device != device for tensor in own_tensors(module).values())
    }
    names, known = path.split(".") if path else [], dict(tracker.list_modules())
    parts = dict(registered_entries(known[""], "_modules")) if "" in known else {}
    for length in range(1 if names and names[0] not in parts else 0, len(names) + 1):  # a second model stands beside the first
        top = ".".join(names[:length])
        if top in known and not any(owner == top or owner.startswith(f"{top}." if top else "") for owner in elsewhere):
            return top
    return None


def _held_by_name(frames: Sequence[FrameType], family: list[torch.Tensor]) -> Held | None:
    for frame in frames:
        for name, value in globals_used(frame).items():
            if any(value is member for member in family):
                return Held(None, name, "global", "", _module_level(frame, name))
    return None


def _module_level(frame: FrameType, name: str) -> Site | None:
    return statements.assignment(frame.f_code.co_filename, name, 1_000_000_000) or statements.cell_assignment(name)
