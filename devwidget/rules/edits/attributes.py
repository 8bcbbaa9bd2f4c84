"""Attributes: edits that turn what a module keeps in a plain attribute into a buffer, a parameter or registered modules."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from devwidget.records.finding import Effect, Fix, PlaceAttribute, RegisterBuffers, RegisterModules, RegisterParameters
from devwidget.records.schema.fields import ProcessLocal
from devwidget.records.schema.message import Message
from devwidget.records.syntax import assigns_self_attribute, calls_named, is_self_attribute, name_of_called, targets_of
from devwidget.records.trace import Held
from devwidget.rules.edits.calls import FACTORIES, starts_empty
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.modules import spelled
from devwidget.rules.edits.source_file import Code, code_at

_RANDOM = frozenset({"rand", "randn", "empty", "normal", "randn_like", "rand_like", "empty_like", "Tensor", "FloatTensor"})
_INITIAL = frozenset({"zeros", "ones", "full", "zeros_like", "ones_like", "full_like"})
_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16", "complex64", "complex128"})
_ASKS_GRADIENT = re.compile(r",\s*requires_grad\s*=\s*True|\.requires_grad_\((True)?\)")
_TAKEN_KEYS = frozenset({
    "add_module", "apply", "bfloat16", "buffers", "children", "clear", "compile", "cpu", "cuda", "double", "eval",
    "dump_patches", "extra_repr",
    "float", "forward", "half", "items", "keys", "modules", "parameters", "pop", "state_dict", "to", "train",
    "training", "type", "update", "values", "xpu", "zero_grad",
})  # fmt: skip
"""Names that `nn.ModuleDict` refuses as keys, "attribute already exists", as far as anybody would choose them (2.13)."""


def register_attribute(held: Held, dtype: str = "float32") -> Fix | None:
    """Register what a module keeps.

    Args:
        dtype: of the tensor: what holds no floating point can be no parameter.
    """
    attribute = re.split(r"[.\[]", held.name)[0]
    at = code_at(held.assigned, f"self.{attribute}")
    if at is None or getattr(at[1], "value", None) is None or len(targets_of(at[1])) != 1:
        return None
    code, statement = at
    owner = code.owner(statement)
    if held.how == "class attribute":
        return _class_attribute(code, statement, owner, attribute)
    if not assigns_self_attribute(statement, attribute):
        return None
    if held.note:
        return _modules(code, owner, statement, attribute, held)
    if held.name == attribute:
        return _one_tensor(code, owner, statement, attribute, dtype)
    if re.fullmatch(rf"{attribute}\[[^\[.]+", held.name):
        return _many_buffers(code, owner, statement, attribute, held.name.removeprefix(attribute))
    if re.fullmatch(rf"{attribute}(\.\w+)+", held.name):
        return _rebuilt(code, owner, statement, attribute)
    return None


def _assignments(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str) -> list[ast.stmt]:
    if owner is None:
        return [statement]
    return [n for n in ast.walk(owner) if isinstance(n, ast.stmt) and assigns_self_attribute(n, attribute)]


def _one_tensor(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str, dtype: str) -> Fix | None:
    """`self.mask = value` becomes a buffer. Where it is set again later, a buffer takes the new value by itself."""
    draft, kind = Draft(code), ""
    inside = [n for n in _assignments(code, owner, statement, attribute) if getattr(code.scope(n), "name", "") == "__init__"]
    for each in inside or [statement]:
        value = getattr(each, "value", None)
        if not isinstance(each, ast.Assign | ast.AnnAssign) or value is None or len(targets_of(each)) != 1:
            return None
        text = code.text(value)
        if isinstance(value, ast.Constant) and value.value is not None:
            return None  # a number or a text is no buffer
        if isinstance(value, ast.Constant):
            draft.rewrite(each, f"self.register_buffer({attribute!r}, None)")
            continue
        kind = _kind_of(code, owner, each, value, attribute, dtype)
        if kind == "parameter":
            new = f"self.{attribute} = {spelled(code, 'Parameter')}({_ASKS_GRADIENT.sub('', text)})"
        else:
            new = f"self.register_buffer({attribute!r}, {text}{', persistent=False' if kind == 'constant' else ''})"
        draft.rewrite(each, new)
    words = Message("register it as a buffer")
    if kind == "parameter":
        words = Message("register it as a parameter")
    method = getattr(code.scope(statement), "name", "__init__")
    found = fix(Message("{registered} in `{method}`", registered=words, method=method), draft, "sure")
    if owner is None or len(inside) > 1:
        return found
    if kind == "parameter":
        effect = RegisterParameters(code.file, owner.name, attribute)
        return _with_effect(found, effect, _is_only_filled(code, owner, statement, attribute))
    uses = _uses_after(code, owner, statement, attribute)
    is_only_read = uses is not None and all(isinstance(each.ctx, ast.Load) for each in uses)
    return _with_effect(found, RegisterBuffers(code.file, owner.name, (attribute,)), is_only_read)


def with_placed_attribute(found: Fix | None, held: Held, device: object) -> Fix | None:
    """A fix that creates the tensor of an attribute on a device, with what it does to a model that was built."""
    at = code_at(held.assigned)
    owner = at[0].owner(at[1]) if at is not None else None
    if found is None or at is None or owner is None or not assigns_self_attribute(at[1], held.name):
        return found
    code, statement = at
    lines = range(statement.lineno, (statement.end_lineno or 0) + 1)
    is_all = all(edit.file == code.file and edit.first in lines and edit.last in lines for edit in found.edits)
    effect = PlaceAttribute(code.file, owner.name, held.name, str(device))
    return _with_effect(found, effect, is_all and _uses_after(code, owner, statement, held.name) == [])


def _with_effect(found: Fix | None, effect: Effect, is_all: bool) -> Fix | None:
    """A fix with what it does to a model that was built, if the edit does no more."""
    if found is None or not is_all:
        return found
    return replace(found, _effect=ProcessLocal(effect))


_GROWS = {"append", "extend", "insert", "update"}


def _is_only_filled(code: Code, owner: ast.ClassDef, statement: ast.stmt, attribute: str) -> bool:
    """Whether what was built after a statement has done no more with the attribute than to append to it."""
    uses = _uses_after(code, owner, statement, attribute)
    return uses is not None and all(getattr(code.parents.get(each), "attr", "") in _GROWS for each in uses)


def _uses_after(code: Code, owner: ast.ClassDef, statement: ast.stmt, attribute: str) -> list[ast.Attribute] | None:
    """Where the method uses the attribute below a statement; None where the statement does not run once, in the constructor."""
    method = code.scope(statement)
    if not isinstance(method, ast.FunctionDef) or method not in owner.body or statement not in method.body:
        return None
    at = method.body.index(statement)
    if method.name == "__init__" and not any("__init__" in ast.unparse(each) for each in method.body[:at]):
        return None  # the constructor of the base has not run
    if method.name != "__init__" and len(_assignments(code, owner, statement, attribute)) != 1:
        return None
    nodes = [node for each in method.body[at + 1 :] for node in ast.walk(each)]
    return [node for node in nodes if isinstance(node, ast.Attribute) and is_self_attribute(node, attribute)]


def _kind_of(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, value: ast.expr, attribute: str, dtype: str) -> str:
    """`parameter` for what asks for a gradient, random numbers and what is initialised in place, `state` for zeros and ones,
    `constant` for the rest.

    What a model starts from belongs in its checkpoint; what its class computes anew does not. A tensor that a
    method replaces is not a parameter, and neither is a tensor without a floating-point dtype.
    """
    made = {name_of_called(n) for n in ast.walk(value) if isinstance(n, ast.Call)}
    initialised = any(
        isinstance(n, ast.Call) and re.search(r"init\.\w+_$", ast.unparse(n.func)) and n.args
        and is_self_attribute(n.args[0], attribute)
        for n in ast.walk(owner or code.tree)
    )  # fmt: skip
    plain = isinstance(value, ast.Call) and name_of_called(value) in _RANDOM
    scaled = isinstance(value, ast.BinOp) and bool(made) and made <= _RANDOM
    trained = _ASKS_GRADIENT.search(code.text(value)) or initialised or plain or scaled
    methods = {getattr(code.scope(each), "name", "") for each in _assignments(code, owner, statement, attribute)}
    if trained and "forward" not in methods and dtype in _FLOATS:
        return "parameter"
    if re.search(r"mask|index|ids$|position", attribute):
        return "constant"
    if made & _INITIAL and not made - _INITIAL:
        return "state"
    return "constant"


def is_taken(held: Held) -> bool:
    """Whether the key of a module, `metrics['train'].weight`, is one that `nn.ModuleDict` refuses."""
    found = re.search(r"\['(\w+)'\]", held.name)
    return found is not None and found[1] in _TAKEN_KEYS


def _modules(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str, held: Held) -> Fix | None:
    """A list or dict of modules becomes an `nn.ModuleList` or `nn.ModuleDict`, which take `append` and items too."""
    draft = Draft(code)
    for each in _assignments(code, owner, statement, attribute):
        value = getattr(each, "value", None)
        if not isinstance(each, ast.Assign | ast.AnnAssign) or value is None:
            return None
        kind = _module_container(held.name[len(attribute) :])
        keys = {n.value for n in ast.walk(value) if isinstance(n, ast.Constant)}
        if not kind or (kind == "ModuleDict" and keys & _TAKEN_KEYS):
            return None
        text = "" if starts_empty(code.text(each)) else code.text(value)
        draft.replace(value, f"{spelled(code, kind)}({text})")
    found = fix(Message("register the modules"), draft, "sure")
    if owner is None:
        return found
    effect = RegisterModules(code.file, owner.name, attribute)
    return _with_effect(found, effect, _is_only_filled(code, owner, statement, attribute))


def _module_container(path: str) -> str:
    """`ModuleList` for `[0].weight`, `ModuleDict` for `['name'].weight`; "" where lists are in lists."""
    if re.match(r"\['[^.'\[\]]+'\]\.", path):
        return "ModuleDict"
    return "ModuleList" if re.match(r"\[\d+\]\.", path) else ""


def _many_buffers(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str, item: str) -> Fix | None:
    """Make each tensor of an unchanged list or dict a buffer, and return the list or dict from a property.

    Args:
        item: one of them, `[0]` or `['key']`.
    """
    value, method = getattr(statement, "value", None), code.scope(statement)
    is_dict = "'" in item
    kinds = (ast.Dict, ast.DictComp) if is_dict else (ast.List, ast.ListComp)
    if owner is None or not isinstance(value, kinds) or not isinstance(method, ast.FunctionDef):
        return None
    uses = [n for n in ast.walk(owner) if is_self_attribute(n, attribute)]
    taken = {n.id for n in ast.walk(method) if isinstance(n, ast.Name)} & {"key", "part"}
    if taken or len(_assignments(code, owner, statement, attribute)) != 1 or any(_may_change(code, each) for each in uses):
        return None
    text, prefix = code.text(value), f"{attribute}_"
    words = [n.value for n in ast.walk(owner) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if "requires_grad" in text or starts_empty(code.text(statement)) or any(word.startswith(prefix) for word in words):
        return None  # what is trained is no buffer, and another name must not be taken for an item
    items = f"{text}.items()" if is_dict else f"enumerate({text})"
    draft = Draft(code)
    draft.rewrite(statement, f"for key, part in {items}:\n    self.register_buffer(f'{prefix}{{key}}', part, persistent=False)")
    mine = f"for name, part in self.named_buffers(recurse=False) if name.startswith({prefix!r})"
    built = f"{{name.removeprefix({prefix!r}): part {mine}}}" if is_dict else f"[part {mine}]"
    return _with_property(draft, owner, method, attribute, built)


def _with_property(draft: Draft, owner: ast.ClassDef, method: ast.FunctionDef, attribute: str, built: str) -> Fix | None:
    """Insert the property above the next method; above the method itself if it is the last."""
    below = owner.body[owner.body.index(method) + 1 :]
    place = below[0] if below else method
    draft.insert_above(place, f"@property\ndef {attribute}(self):\n    return {built}\n")
    return fix(Message("register its tensors as buffers, and build `{attribute}` from them", attribute=attribute), draft)


def _may_change(code: Code, node: ast.AST) -> bool:
    """Return whether `self.parts` gets or loses an item in place, or gets another name: `parts = self.parts`."""
    outer = code.parents.get(node)
    if isinstance(outer, ast.Subscript):
        return not isinstance(outer.ctx, ast.Load)
    if isinstance(outer, ast.Attribute):
        return outer.attr not in ("items", "keys", "values", "get", "index")
    return isinstance(outer, ast.Assign | ast.AugAssign) and outer.value is node


def _rebuilt(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str) -> Fix | None:
    """`self.prior = Normal(zeros, ones)`: the tensors become buffers, and a property builds the object from them."""
    value, method = getattr(statement, "value", None), code.scope(statement)
    if not isinstance(value, ast.Call):
        return None
    made = list(calls_named(ast.walk(value), *FACTORIES))
    names = [getattr(code.parents[call], "arg", number) for number, call in enumerate(made)]  # `loc=torch.zeros(3)`
    tensors = {f"{attribute}_{name}": call for name, call in zip(names, made, strict=True)}
    if owner is None or not tensors or len(_assignments(code, owner, statement, attribute)) != 1:
        return None
    inside = {part for call in made for part in ast.walk(call)}
    read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n not in inside}
    if read & code.bound(statement) or not isinstance(method, ast.FunctionDef):
        return None  # they have no value outside of this method
    draft = Draft(code)
    lines = [f"self.register_buffer({name!r}, {code.text(arg)}, persistent=False)" for name, arg in tensors.items()]
    draft.rewrite(statement, "\n".join(lines))
    built = code.text(value)
    for name, arg in tensors.items():
        built = built.replace(code.text(arg), f"self.{name}", 1)
    return _with_property(draft, owner, method, attribute, built)


def _class_attribute(code: Code, statement: ast.stmt, owner: ast.ClassDef | None, attribute: str) -> Fix | None:
    """`mask = torch.ones(3)` in the body of the class becomes a buffer that `__init__` registers."""
    inits = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"] if owner is not None else []
    begun = [n for init in inits[:1] for n in init.body if "super()" in ast.unparse(n)]
    value = getattr(statement, "value", None)
    if owner is None or value is None or not begun:
        return None
    draft = Draft(code)
    draft.rewrite(statement, "pass" if len(owner.body) == 1 else f"{attribute}: torch.Tensor")
    draft.insert_below(begun[0], f"self.register_buffer({attribute!r}, {code.text(value)}, persistent=False)")
    return fix(Message("register it as a buffer in `__init__`"), draft, "sure")
