"""Made modules: what an edited constructor would have done, done to the modules that it has made, and moved as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import CodeType

import torch
from torch import nn

from devwidget.capture.modules import TENSOR_GROUPS, all_tensors, named_tensors, own, registered_entries, walk_modules
from devwidget.capture.tensors import is_parameter
from devwidget.records.device import PLACING_METHODS
from devwidget.trying.constructors import Effect
from devwidget.trying.edited_file import NotTried
from devwidget.trying.subjects import Subjects

_PLACES = {"device", *PLACING_METHODS}


def apply_effects(effects: Sequence[Effect], subjects: Subjects) -> None:
    """Do to the modules of a step what their edited constructors would have done, and move what is registered now.

    Raises:
        NotTried: if there is no such module, or it is not certain where it was moved after it had been built.
    """
    modules, made = list(subjects.modules()), set[int]()
    for module in modules:
        mine = [each for each in effects if _was_made_by(each, module)]
        if mine:
            if any(_names(effect.code) & _PLACES for effect in mine):
                raise NotTried("its constructor chooses a device")
            device, before = _moved_to(module, modules, effects), {id(t) for t in all_tensors(module)}
            for effect in mine:
                _apply(effect, module)
            _move(module, before, device)
            _train(module, before, subjects)
            made |= set(map(id, mine))
    if len(made) != len(effects):
        raise NotTried("no module was made by that constructor")


def _was_made_by(effect: Effect, module: nn.Module) -> bool:
    """Whether the constructor of its class, or of a base, is the edited one; of other methods the nearest alone runs."""
    (name,) = {maker.__name__ for maker in effect.makers}
    methods = [vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)]
    return any(each is maker for each in (methods if name == "__init__" else methods[:1]) for maker in effect.makers)


def _code(kind: type, effects: Sequence[Effect]) -> CodeType | None:
    """Of the constructor of a class, as it ran."""
    init = vars(kind).get("__init__")
    return next((each.code for each in effects if any(maker is init for maker in each.makers)), getattr(init, "__code__", None))


def _apply(effect: Effect, module: nn.Module) -> None:
    if effect.given is None and not own(module).keys() >= {*effect.attributes}:
        raise NotTried(f"`{effect.attributes[0]}` is no plain attribute by now")
    values = effect.given or [own(module).pop(attribute) for attribute in effect.attributes]
    try:
        effect.apply(module, *values)
    except Exception as error:  # what the new line raises now it might not raise in the constructor
        raise NotTried(f"{type(error).__name__}: {error}") from error


def _moved_to(module: nn.Module, modules: Sequence[nn.Module], effects: Sequence[Effect]) -> torch.device:
    """Where the module went after it had been built without a word of a device.

    Its own tensors tell; if it has none, those of the module whose constructor names its class.
    """
    around: list[nn.Module] = [module]
    while True:
        if any(_names(_code(kind, effects)) & _PLACES for _, each in walk_modules(around[-1]) for kind in _users(type(each))):
            raise NotTried("its constructor chooses a device")
        devices = {tensor.device for tensor in all_tensors(around[-1])}
        if len(devices) == 1:
            return devices.pop()
        owner = next((each for each in modules if _is_child(around[-1], each)), None)
        if devices or owner is None or type(around[-1]).__name__ not in _names(_code(type(owner), effects)):
            raise NotTried("it is not certain where the module was moved")
        around.append(owner)


def _users(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if base.__module__.partition(".")[0] != "torch")


def _names(code: CodeType | None) -> set[str]:
    """Names and keywords that some code uses, with the code inside it."""
    found: set[str] = set(code.co_names) if code is not None else set()
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType):
            found |= _names(constant)
        elif isinstance(constant, tuple):
            found |= {each for each in constant if isinstance(each, str)}
    return found


def _is_child(module: nn.Module, owner: nn.Module) -> bool:
    return any(child is module for _, child in registered_entries(owner, "_modules"))


def _move(module: nn.Module, before: set[int], device: torch.device) -> None:
    dtypes = {tensor.dtype for tensor in all_tensors(module) if id(tensor) in before and tensor.is_floating_point()}
    for _, each in walk_modules(module):
        for group in TENSOR_GROUPS:
            for name, tensor in registered_entries(each, group):
                if id(tensor) in before:
                    continue
                if tensor.is_floating_point() and dtypes - {torch.get_default_dtype(), tensor.dtype}:
                    raise NotTried("the module was cast as well")
                if is_parameter(tensor):
                    tensor.data = tensor.data.to(device)
                else:
                    dict.__setitem__(own(each)[group], name, tensor.to(device))


def _train(module: nn.Module, before: set[int], subjects: Subjects) -> None:
    """What `model.parameters()` would have given the optimizer."""
    new = [each for _, each in named_tensors(module, "_parameters") if id(each) not in before and each.requires_grad]
    if subjects.optimizer is None or not new:
        return
    groups = subjects.optimizer.param_groups
    known = {id(each) for group in groups for each in group["params"]}
    trained = {id(each) for _, each in named_tensors(subjects.model, "_parameters")}
    if len(groups) != 1 or known != trained - {id(each) for each in new}:
        raise NotTried("it is not certain that the optimizer would train it")
    groups[0]["params"].extend(new)
