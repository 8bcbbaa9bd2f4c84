"""Constructors: what the new lines of `__init__` do, done to the modules that it has made and moved as they were.

A model that is there cannot be built again: what its classes were given is gone, and its weights and hooks are what the step is
tried on. So an edit that only registers or assigns attributes becomes a function of the module; any other is not tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import TENSOR_GROUPS, all_tensors, named_tensors, own, registered_entries, walk_modules
from devwidget.capture.tensors import is_parameter
from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Edit
from devwidget.records.syntax import is_self_attribute
from devwidget.trying.edited_code import EditedFile, Function, NotFound, NotTried, Place, locate_edit
from devwidget.trying.harmless_expressions import is_harmless
from devwidget.trying.trial_subjects import Subjects

VALUE = "_value_"
"""How new lines call what the old ones have made; a number follows where these are several."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an edit of one assignment to attributes does.

    Attributes:
        attributes: that are assigned.
        makers: the constructor, or a method that it calls, once for each run of its cell.
        code: its code without the edit.
        apply: the new statements, of the module and of the values that the old one has given it.
        given: these values, where not the module had them but its class.
    """

    attributes: tuple[str, ...]
    makers: tuple[FunctionType, ...]
    code: CodeType
    apply: FunctionType
    given: tuple[torch.Tensor, ...] | None = None


def find_effect(edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType]) -> Effect:
    """The effect of an edit of a constructor, or of a method that it calls.

    Raises:
        NotTried: if it is not certain that the new lines would do the same where the constructor runs them.
    """
    place = locate_edit(edited.before, edit.first, edit.last)
    old, function = place.block[min(place.number, len(place.block) - 1)], place.function
    if function is None or place.block is not function.body or (old.lineno, old.end_lineno) != (edit.first, edit.last):
        raise NotTried("more or less than one statement of the constructor")
    self_name, makers = self_name_of(function), find_makers(function, live)
    values = read_assignment(old, self_name)
    after = function.body[function.body.index(old) + 1 :]
    if not all(is_alone(place, old, after, self_name, attribute, statements) for attribute in values):
        raise NotTried(f"`{next(iter(values))}` is used while the module is built")
    if any(isinstance(value, ast.Constant) and value.value is not None for value in values.values()):
        raise NotTried("what is there now came later")
    nothing = ast.dump(ast.Constant(None))
    if nothing in map(ast.dump, values.values()) and sum(ast.dump(n) == nothing for s in statements for n in ast.walk(s)) > 1:
        raise NotTried("which of them is the old value is not certain")
    return _make_effect(edited, place, makers, values, without_unpacking(old, statements))


def find_registration(
    edited: EditedFile,
    edit: Edit,
    statements: Sequence[ast.stmt],
    live: Sequence[FunctionType],
    held: Mapping[str, tuple[ast.expr, torch.Tensor]],
) -> Effect:
    """The effect of lines that are put into a constructor, and register what was an attribute of the class.

    Args:
        edited: as for `effect_of`.
        edit: as for `effect_of`.
        statements: as for `effect_of`.
        live: as for `effect_of`.
        held: attributes of the class that the same trial removes, with their source and their values.
    """
    place = locate_edit(edited.before, edit.first, edit.first)
    function = place.function
    if function is None or place.block is not function.body or not held or edit.last >= edit.first:
        raise NotTried("it does not register an attribute of the class")
    after, self_name = function.body[place.number :], self_name_of(function)
    if not all(is_alone(place, None, after, self_name, attribute, statements) for attribute in held):
        raise NotTried("an attribute of the class is used while the module is built")
    values = {attribute: value for attribute, (value, _) in held.items()}
    return _make_effect(
        edited, place, find_makers(function, live), values, statements, tuple(value for _, value in held.values())
    )


def _make_effect(
    edited: EditedFile,
    place: Place,
    makers: tuple[FunctionType, ...],
    values: Mapping[str, ast.expr],
    statements: Sequence[ast.stmt],
    given: tuple[torch.Tensor, ...] | None = None,
) -> Effect:
    if place.function is None or not makers or len({each.__code__ for each in makers}) > 1:
        raise NotFound("its constructor is not there any more")
    self_name, known = self_name_of(place.function), makers[0].__globals__
    names = {ast.dump(value): f"{VALUE}{number}" for number, value in enumerate(values.values())}
    new = [Substitute(names).visit(_copy(statement)) for statement in statements]
    local = {arg.arg for arg in ast.walk(place.function.args) if isinstance(arg, ast.arg)} | _local_names(place.function)
    outer = {name: each for name, each in known.items() if name not in local}
    if len(names) < len(values) or not new or not all(is_registration(each, self_name, values) for each in new):
        raise NotTried("it does more than register")
    if not all(is_harmless(each, outer, (self_name, *names.values())) for each in new):
        raise NotTried("it reads what only the constructor knows")
    apply = _compile_function(new, (self_name, *names.values()), edited.file, known)
    return Effect(tuple(values), makers, makers[0].__code__, apply, given)


def runs_in_constructor(place: Place) -> bool:
    """Whether a method is called by the constructor of its class."""
    if place.function is None or place.owner is None or place.function not in place.owner.body:
        return False
    inits = [each for each in place.owner.body if isinstance(each, Function) and each.name == "__init__"]
    calls = [node.func for each in inits for node in ast.walk(each) if isinstance(node, ast.Call)]
    return any(is_self_attribute(func, place.function.name, self_name_of(init)) for init in inits for func in calls)


def find_makers(function: Function, live: Sequence[FunctionType]) -> tuple[FunctionType, ...]:
    """The functions that some source has become."""
    line = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    return tuple(each for each in live if each.__code__.co_firstlineno == line and each.__name__ == function.name)


class Substitute(ast.NodeTransformer):
    """The old value stands wherever the new lines would compute it once more."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> Any:
        """Replace what is spelled as an old value was."""
        name = self._names.get(ast.dump(node)) if isinstance(node, ast.expr) else None
        return ast.copy_location(ast.Name(name, ast.Load()), node) if name else super().visit(node)


def _copy(statement: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(statement)).body[0]


def _local_names(function: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _compile_function(statements: list[ast.stmt], names: Sequence[str], file: str, known: dict[str, Any]) -> FunctionType:
    tree = ast.parse(f"def apply({', '.join(names)}): pass")
    tree.body[0].body = statements  # type: ignore[attr-defined]  # a function has one
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True), known, made)
    found: FunctionType = made["apply"]
    return found


_GROWS = {"append", "extend", "insert", "update"}


def self_name_of(function: Function) -> str:
    """How a method calls its object."""
    return function.args.args[0].arg if function.args.args else ""


def read_assignment(statement: ast.stmt, self_name: str) -> dict[str, ast.expr]:
    """The attributes that a statement assigns, and what it gives them: of `self.a, self.b = table()` the names `a` and `b`."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or value is None or len(getattr(statement, "targets", [0])) > 1:
        raise NotTried("no assignment to an attribute")
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.attr for part in parts if isinstance(part, ast.Attribute) and is_self_attribute(part, self_name=self_name)]
    if len(set(names)) < len(parts):
        raise NotTried("no assignment to an attribute")
    if parts == [target]:
        return {names[0]: value}
    given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    return dict(zip(names, given if len(given) == len(names) else [ast.Name(name, ast.Load()) for name in names], strict=True))


def without_unpacking(old: ast.stmt, statements: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The new statements without the first, if that only gives names to what the old one has unpacked."""
    first, value = statements[0] if statements else None, getattr(old, "value", None)
    target = first.targets[0] if isinstance(first, ast.Assign) else None
    named = isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts)
    same = isinstance(first, ast.Assign) and value is not None and ast.dump(first.value) == ast.dump(value)
    return statements[1:] if named and same else statements


def is_own(node: ast.AST | None, self_name: str, attribute: str = "") -> bool:
    """Whether a node is `self.attribute`, of any attribute if none is named."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name
    return named and attribute in ("", getattr(node, "attr", ""))


def is_alone(
    place: Place, old: ast.stmt | None, after: Sequence[ast.stmt], self_name: str, attribute: str, new: Sequence[ast.stmt]
) -> bool:
    """The attribute is set once, after the constructor of the base, and then only filled or read while the module is built."""
    body: list[ast.stmt] = getattr(place.function, "body", [])
    before, in_constructor = body[: len(body) - len(after)], getattr(place.function, "name", "") == "__init__"
    is_begun = not in_constructor or any("__init__" in ast.unparse(each) for each in before)
    sets = [n for n in ast.walk(place.owner or ast.Pass()) if is_self_attribute(n, attribute, self_name) and _is_set(n)]
    if not in_constructor and len(sets) != 1:
        return False
    uses = [n for each in after for n in ast.walk(each) if is_self_attribute(n, attribute, self_name)]
    parents = {id(child): n for each in after for n in ast.walk(each) for child in ast.iter_child_nodes(n)}
    words = " ".join(map(ast.unparse, new))
    if "register_buffer" in words:
        return is_begun and not any(_is_set(use) for use in uses)
    return is_begun and all(getattr(parents.get(id(use)), "attr", "") in _GROWS for use in uses)


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def is_registration(statement: ast.stmt, self_name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a statement registers something, or assigns one of some attributes."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        return any(is_self_attribute(func, method, self_name) for method in ("register_buffer", "register_parameter"))
    try:
        return read_assignment(statement, self_name).keys() <= attributes.keys()
    except NotTried:
        return False


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
            if any(_names_in(effect.code) & _PLACES for effect in mine):
                raise NotTried("its constructor chooses a device")
            device, before = _find_device(module, modules, effects), {id(t) for t in all_tensors(module)}
            for effect in mine:
                _apply_effect(effect, module)
            _move_registered(module, before, device)
            _add_to_optimizer(module, before, subjects)
            made |= set(map(id, mine))
    if len(made) != len(effects):
        raise NotTried("no module was made by that constructor")


def _was_made_by(effect: Effect, module: nn.Module) -> bool:
    """Whether the constructor of its class, or of a base, is the edited one; of other methods the nearest alone runs."""
    (name,) = {maker.__name__ for maker in effect.makers}
    methods = [vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)]
    return any(each is maker for each in (methods if name == "__init__" else methods[:1]) for maker in effect.makers)


def _constructor_code(kind: type, effects: Sequence[Effect]) -> CodeType | None:
    """Of the constructor of a class, as it ran."""
    init = vars(kind).get("__init__")
    return next((each.code for each in effects if any(maker is init for maker in each.makers)), getattr(init, "__code__", None))


def _apply_effect(effect: Effect, module: nn.Module) -> None:
    if effect.given is None and not own(module).keys() >= {*effect.attributes}:
        raise NotTried(f"`{effect.attributes[0]}` is no plain attribute by now")
    values = effect.given or [own(module).pop(attribute) for attribute in effect.attributes]
    try:
        effect.apply(module, *values)
    except Exception as error:  # what the new line raises now it might not raise in the constructor
        raise NotTried(f"{type(error).__name__}: {error}") from error


def _find_device(module: nn.Module, modules: Sequence[nn.Module], effects: Sequence[Effect]) -> torch.device:
    """Where the module went after it had been built without a word of a device.

    Its own tensors tell; if it has none, those of the module whose constructor names its class.
    """
    around: list[nn.Module] = [module]
    while True:
        if any(
            _names_in(_constructor_code(kind, effects)) & _PLACES
            for _, each in walk_modules(around[-1])
            for kind in _user_classes(type(each))
        ):
            raise NotTried("its constructor chooses a device")
        devices = {tensor.device for tensor in all_tensors(around[-1])}
        if len(devices) == 1:
            return devices.pop()
        owner = next((each for each in modules if _is_child(around[-1], each)), None)
        if devices or owner is None or type(around[-1]).__name__ not in _names_in(_constructor_code(type(owner), effects)):
            raise NotTried("it is not certain where the module was moved")
        around.append(owner)


def _user_classes(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if base.__module__.partition(".")[0] != "torch")


def _names_in(code: CodeType | None) -> set[str]:
    """Names and keywords that some code uses, with the code inside it."""
    found: set[str] = set(code.co_names) if code is not None else set()
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType):
            found |= _names_in(constant)
        elif isinstance(constant, tuple):
            found |= {each for each in constant if isinstance(each, str)}
    return found


def _is_child(module: nn.Module, owner: nn.Module) -> bool:
    return any(child is module for _, child in registered_entries(owner, "_modules"))


def _move_registered(module: nn.Module, before: set[int], device: torch.device) -> None:
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


def _add_to_optimizer(module: nn.Module, before: set[int], subjects: Subjects) -> None:
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
