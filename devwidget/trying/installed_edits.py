"""Put the edits of a trial in place: new function code, and the effects of edited constructors on modules that exist."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.object_fields import class_name, copy_items, is_a, mro_of, names_of, parts_of
from devwidget.capture.source_code.frames import reachable_objects
from devwidget.capture.source_code.source_files import codes_in
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.tensors import (
    TENSOR_GROUPS,
    all_tensors,
    is_parameter,
    is_tensor,
    named_tensors,
    own,
    registered_entries,
    walk_modules,
)
from devwidget.capture.undo import Undo, paused_gc
from devwidget.capture.walk import TooManyObjects
from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Edit, Effect, PlaceAttribute, RegisterBuffers, RegisterModules, RegisterParameters
from devwidget.trying.edited_code import (
    EditPlace,
    NotTried,
    Pair,
    edit_file,
    forget_reached,
    mark_reached,
    put_codes_in_place,
    reached_edits,
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial under way.

    Attributes:
        step: the step that runs.
        numbers: numbers of the edits.
        effects: effect of each edit that has one, by number.
    """

    step: Step
    numbers: frozenset[int]
    effects: Mapping[int, Effect]

    def make_inputs(self) -> Arguments:
        """Apply the effects of code that already ran, and return the arguments of the step. Undone after the trial.

        Raises:
            NotTried: if an effect cannot be applied.
        """
        apply_effects(list(dict.fromkeys(self.effects.values())), self.step)
        for number in self.effects:
            mark_reached(number)
        return self.step.inputs

    def list_unreached(self) -> list[int]:
        """Return the numbers of the edits that have not run."""
        return sorted(self.numbers - reached_edits())


@contextlib.contextmanager
def place_edits(
    edits: Collection[Edit],
    step: Step,
    known: LiveFunctions | None = None,
    effects: Mapping[Edit, Effect] | None = None,
    *,
    is_built: bool = False,
) -> Iterator[Placed]:
    """Run the block with some edits in place.

    Args:
        edits: edits of any number of files.
        step: the step that runs in the block.
        known: the functions of the files, if they were already searched.
        effects: effects of edits whose lines have already run.
        is_built: the block builds the step again, so that edits of constructors run in it.

    Raises:
        NotTried: if an edit cannot be put in place.
    """
    effects = effects or {}
    pairs = _pair_functions(edits, known or find_functions({edit.file for edit in edits}), effects, is_built)
    forget_reached()
    with Undo() as undo:
        put_codes_in_place(pairs, undo)
        numbered = {number: effects[edit] for number, edit in enumerate(edits) if edit in effects}
        yield Placed(step, frozenset(range(len(edits))), numbered)


@paused_gc()  # syntax trees go by themselves
def _pair_functions(
    edits: Collection[Edit], known: LiveFunctions, effects: Mapping[Edit, Effect], is_built: bool
) -> list[Pair]:
    pairs: list[Pair] = []
    by_file: dict[str, dict[Edit, int]] = {}
    for number, edit in enumerate(edits):
        by_file.setdefault(edit.file, {})[edit] = number
    for file, numbers in by_file.items():
        swap, places = edit_file(file, list(numbers), list(numbers.values()))
        for edit, place in zip(numbers, places, strict=True):
            if has_run(place, is_built) and edit not in effects:
                raise NotTried("its lines have run already")
        try:
            pairs += swap.find_pairs(known.by_file[file])
        except SyntaxError as error:
            raise NotTried(str(error)) from error
    return pairs


def has_run(place: EditPlace, is_built: bool = False) -> bool:
    """Return whether an edit is in code that runs before the step: a module, a class body, or a constructor that is not run
    again.
    """
    if place.function is None:
        return True
    return place.function.name == "__init__" and not is_built


# The functions that are alive.


_DEEPEST = 50


class LiveFunctions(NamedTuple):
    """The functions of some files.

    Attributes:
        by_file: the functions that were found.
        is_whole: False if the search stopped because the program has too many objects.
    """

    by_file: dict[str, list[FunctionType]]
    is_whole: bool


def find_functions(files: Collection[str], roots: Iterable[Any] = ()) -> LiveFunctions:
    """Find the functions of some files that are reachable from `roots`, the call stack and the globals of the files.

    Args:
        files: names of the files.
        roots: objects to search first. If the search stops early, it has covered what is nearest to them.
    """
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    first = list(roots)
    try:
        # From the frames below us too: a function may be held by a variable of a running call alone.
        for each in reachable_objects(sys._getframe(1), roots=[*first, *_list_variables(files, first)], deepest=_DEEPEST):
            if type(each) is FunctionType and each.__code__.co_filename in found:
                found[each.__code__.co_filename].append(each)
    except TooManyObjects:
        return LiveFunctions(found, is_whole=False)
    return LiveFunctions(found, is_whole=True)


def _list_variables(files: Collection[str], roots: Iterable[Any]) -> Iterator[Any]:
    """Yield values of the global variables of some files. Functions among the roots may belong to modules outside of
    `sys.modules`.
    """
    namespaces: dict[int, dict[str, Any]] = {}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and _is_of(module, files):
            namespaces[id(vars(module))] = vars(module)
    for function in _list_functions(roots):
        if function.__code__.co_filename in files:
            namespaces[id(function.__globals__)] = function.__globals__
    for namespace in namespaces.values():
        for _, value in copy_items(namespace):
            yield value


def _list_functions(roots: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield the functions among the roots, and in the bodies of classes among them."""
    for root in roots:
        members = [root]
        if is_a(root, type):
            members += names_of(root).values()
        for member in members:
            if type(member) is FunctionType:
                yield member


def _is_of(module: ModuleType, files: Collection[str]) -> bool:
    file = vars(module).get("__file__")
    return module is sys.modules.get("__main__") or (type(file) is str and file in files)


# Effects of edited constructors on modules that exist. A trial cannot build the model again: the arguments are gone, and the
# step needs the current weights and hooks. All effects are undone after the step.


_PLACES = {"device", *PLACING_METHODS}


def apply_effects(effects: Sequence[Effect], step: Step) -> None:
    """Register what the edited constructors register, on the device of the module, and move what they create elsewhere.

    Raises:
        NotTried: if there is no such module, or its device after construction is uncertain.
    """
    modules, applied = step.list_modules(), set[Effect]()
    for module in modules:
        mine = [effect for effect in effects if _is_made_by(module, effect)]
        placed = [effect for effect in mine if type(effect) is PlaceAttribute]
        for effect in placed:
            _place_attribute(module, effect)
        if len(mine) > len(placed):
            _register([effect for effect in mine if effect not in placed], module, step)
        applied |= {*mine}
    if len(applied) < len(effects):
        raise NotTried("no module was made by that constructor")


def _place_attribute(module: nn.Module, effect: PlaceAttribute) -> None:
    tensor = _take_attribute(module, effect.attribute)
    if not is_tensor(tensor):
        raise NotTried(f"`{effect.attribute}` is no longer a tensor")
    own(module)[effect.attribute] = tensor.to(effect.device)


def _register(effects: Sequence[Effect], module: nn.Module, step: Step) -> None:
    device = _find_device(module, step.model)
    before = {id(tensor) for tensor in all_tensors(module)}
    for effect in effects:
        _apply_effect(effect, module)
    _move_registered(module, before, device)
    _add_to_optimizer(module, before, step)


def _is_made_by(module: nn.Module, effect: Effect) -> bool:
    return any(class_name(kind) == effect.class_name and _is_of_file(kind, effect.file) for kind in mro_of(type(module)))


def _is_of_file(kind: type, file: str) -> bool:
    return any(type(each) is FunctionType and each.__code__.co_filename == file for each in names_of(kind).values())


def _apply_effect(effect: Effect, module: nn.Module) -> None:
    match effect:
        case RegisterBuffers(attributes=attributes):
            for attribute in attributes:
                _register_buffer(module, attribute, _take_attribute(module, attribute))
        case RegisterModules(attribute=attribute):
            nn.Module.__setattr__(module, attribute, _make_module(_take_attribute(module, attribute)))
        case RegisterParameters(attribute=attribute):
            nn.Module.__setattr__(module, attribute, _make_parameters(_take_attribute(module, attribute)))


def _take_attribute(module: nn.Module, attribute: str) -> Any:
    if attribute not in own(module):
        raise NotTried(f"`{attribute}` is no longer a plain attribute")
    return own(module).pop(attribute)


def _register_buffer(module: nn.Module, attribute: str, value: Any) -> None:
    if value is not None and not is_tensor(value):
        raise NotTried(f"`{attribute}` is no longer a tensor")
    nn.Module.register_buffer(module, attribute, value)


def _make_parameters(value: Any) -> Any:
    if is_tensor(value):
        return nn.Parameter(value)
    if type(value) not in (dict, list, tuple) or not all(map(is_tensor, parts_of(value))):
        raise NotTried("it no longer holds only tensors")
    parameters = [nn.Parameter(part) for part in parts_of(value)]
    if type(value) is dict:
        return nn.ParameterDict(dict(zip(value, parameters, strict=True)))
    return nn.ParameterList(parameters)


def _make_module(value: Any) -> nn.Module:
    try:
        if type(value) is dict:
            return nn.ModuleDict(value)
        return nn.ModuleList(value)
    except (TypeError, KeyError) as error:
        raise NotTried("it no longer holds only modules") from error


def _find_device(module: nn.Module, model: nn.Module) -> torch.device:
    """Return the device that the module was moved to. Constructors that choose a device are refused."""
    for root in (module, model):
        for code in _constructors_below(root):
            if not _PLACES.isdisjoint(_names_in(code)):
                raise NotTried("its constructor chooses a device")
        devices = {tensor.device for tensor in all_tensors(root)}
        if len(devices) == 1:
            return devices.pop()
        if devices:
            break
    raise NotTried("it is not certain where the module was moved")


def _constructors_below(root: nn.Module) -> Iterator[CodeType]:
    """Yield the constructors of a module and its submodules, except torch constructors."""
    for _, module in walk_modules(root):
        for kind in type(module).__mro__:
            init = vars(kind).get("__init__")
            if type(init) is FunctionType and kind.__module__.partition(".")[0] != "torch":
                yield init.__code__


def _names_in(code: CodeType) -> set[str]:
    """Return names and keywords in some code, and in the code nested in it."""
    found = set[str]()
    for each in codes_in(code):
        found.update(each.co_names)
        for constant in each.co_consts:
            if isinstance(constant, tuple):  # names of keywords
                found.update(name for name in constant if isinstance(name, str))
    return found


def _move_registered(root: nn.Module, before: set[int], device: torch.device) -> None:
    old, new = [], []
    for _, module in walk_modules(root):
        for group in TENSOR_GROUPS:
            for name, tensor in registered_entries(module, group):
                if id(tensor) in before:
                    old.append(tensor)
                else:
                    new.append((own(module)[group], name, tensor))
    dtypes = {tensor.dtype for tensor in old if tensor.is_floating_point()}
    for entries, name, tensor in new:
        if tensor.is_floating_point() and dtypes - {torch.get_default_dtype(), tensor.dtype}:
            raise NotTried("the module was cast as well")
        if is_parameter(tensor):
            tensor.data = tensor.data.to(device)
        else:
            dict.__setitem__(entries, name, tensor.to(device))


def _add_to_optimizer(module: nn.Module, before: set[int], step: Step) -> None:
    """Add the new parameters to the optimizer, as `model.parameters()` would have."""
    parameters = [tensor for _, tensor in named_tensors(module, "_parameters") if tensor.requires_grad]
    new = [tensor for tensor in parameters if id(tensor) not in before]
    if step.optimizer is None or not new:
        return
    groups = step.optimizer.param_groups
    trained = {id(tensor) for _, tensor in named_tensors(step.model, "_parameters")}
    before_edit = trained.difference(map(id, new))
    if len(groups) != 1 or set(map(id, groups[0]["params"])) != before_edit:
        raise NotTried("it is not certain that the optimizer would train it")
    groups[0]["params"].extend(new)
