"""Attributes: edits that turn what a module keeps in a plain attribute into a buffer, a parameter or registered modules."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from devwidget.records.finding import Effect, Fix, PlaceAttribute, RegisterBuffers, RegisterModules, RegisterParameters
from devwidget.records.schema.fields import ProcessLocal
from devwidget.records.schema.message import Message
from devwidget.records.syntax import (
    assigns_self_attribute,
    calls_named,
    is_self_attribute,
    name_of_called,
    names_in,
    nodes_in,
    parsed_expression,
    targets_of,
    texts_in,
)
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
    return [each for each in nodes_in(owner, ast.stmt) if assigns_self_attribute(each, attribute)]


def _one_tensor(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str, dtype: str) -> Fix | None:
    """`self.mask = value` becomes a buffer. Where it is set again later, a buffer takes the new value by itself."""
    draft, kind = Draft(code), ""
    assignments = _assignments(code, owner, statement, attribute)
    inside = [each for each in assignments if getattr(code.scope(each), "name", "") == "__init__"]
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
        match kind:
            case "parameter":
                draft.rewrite(each, f"self.{attribute} = {spelled(code, 'Parameter')}({_ASKS_GRADIENT.sub('', text)})")
            case "constant":
                draft.rewrite(each, f"self.register_buffer({attribute!r}, {text}, persistent=False)")
            case _:
                draft.rewrite(each, f"self.register_buffer({attribute!r}, {text})")
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
    if found is None or at is None:
        return found
    code, statement = at
    owner = code.owner(statement)
    if owner is None or not assigns_self_attribute(statement, held.name):
        return found
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
    found = []
    for below in method.body[at + 1 :]:
        found += [each for each in nodes_in(below, ast.Attribute) if is_self_attribute(each, attribute)]
    return found


def _kind_of(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, value: ast.expr, attribute: str, dtype: str) -> str:
    """`parameter` for what asks for a gradient, random numbers and what is initialised in place, `state` for zeros and ones,
    `constant` for the rest.

    What a model starts from belongs in its checkpoint; what its class computes anew does not. A tensor that a
    method replaces is not a parameter, and neither is a tensor without a floating-point dtype.
    """
    made = set(map(name_of_called, nodes_in(value, ast.Call)))
    plain = isinstance(value, ast.Call) and name_of_called(value) in _RANDOM
    scaled = isinstance(value, ast.BinOp) and bool(made) and made <= _RANDOM
    asks = _ASKS_GRADIENT.search(code.text(value)) is not None
    trained = asks or plain or scaled or _is_initialised(owner or code.tree, attribute)
    methods = {getattr(code.scope(each), "name", "") for each in _assignments(code, owner, statement, attribute)}
    if trained and "forward" not in methods and dtype in _FLOATS:
        return "parameter"
    if re.search(r"mask|index|ids$|position", attribute):
        return "constant"
    if made and made <= _INITIAL:
        return "state"
    return "constant"


def _is_initialised(tree: ast.AST, attribute: str) -> bool:
    """Whether a function of `torch.nn.init` fills an attribute: `nn.init.normal_(self.scale)`."""
    for call in nodes_in(tree, ast.Call):
        is_init = re.search(r"init\.\w+_$", ast.unparse(call.func)) is not None
        if is_init and call.args and is_self_attribute(call.args[0], attribute):
            return True
    return False


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
        kind, text = _module_container(held.name[len(attribute) :]), code.text(value)
        if not kind or (kind == "ModuleDict" and not _TAKEN_KEYS.isdisjoint(texts_in(value))):
            return None
        if starts_empty(code.text(each)):
            text = ""
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
    if re.match(r"\[\d+\]\.", path):
        return "ModuleList"
    return ""


def _many_buffers(code: Code, owner: ast.ClassDef | None, statement: ast.stmt, attribute: str, item: str) -> Fix | None:
    """Make each tensor of an unchanged list or dict a buffer, and return the list or dict from a property.

    Args:
        item: one of them, `[0]` or `['key']`.
    """
    value, method = getattr(statement, "value", None), code.scope(statement)
    if owner is None or not isinstance(method, ast.FunctionDef) or not isinstance(value, ast.expr):
        return None
    text, prefix = code.text(value), f"{attribute}_"
    mine = f"for name, part in self.named_buffers(recurse=False) if name.startswith({prefix!r})"
    is_dict = "'" in item
    if is_dict and isinstance(value, ast.Dict | ast.DictComp):
        items, built = f"{text}.items()", f"{{name.removeprefix({prefix!r}): part {mine}}}"
    elif not is_dict and isinstance(value, ast.List | ast.ListComp):
        items, built = f"enumerate({text})", f"[part {mine}]"
    else:
        return None
    uses = [each for each in nodes_in(owner, ast.Attribute) if is_self_attribute(each, attribute)]
    has_names = not {"key", "part"}.isdisjoint(names_in(method))
    if has_names or len(_assignments(code, owner, statement, attribute)) != 1 or any(_may_change(code, each) for each in uses):
        return None
    if "requires_grad" in text or starts_empty(code.text(statement)):
        return None  # what is trained is no buffer
    if any(word.startswith(prefix) for word in texts_in(owner)):
        return None  # another name must not be taken for an item
    draft = Draft(code)
    draft.rewrite(statement, f"for key, part in {items}:\n    self.register_buffer(f'{prefix}{{key}}', part, persistent=False)")
    return _with_property(draft, owner, method, attribute, built)


def _with_property(draft: Draft, owner: ast.ClassDef, method: ast.FunctionDef, attribute: str, built: str) -> Fix | None:
    """Insert the property above the next method; above the method itself if it is the last."""
    place: ast.stmt = method
    if method is not owner.body[-1]:
        place = owner.body[owner.body.index(method) + 1]
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
    if owner is None or not isinstance(value, ast.Call) or not isinstance(method, ast.FunctionDef):
        return None
    if len(_assignments(code, owner, statement, attribute)) != 1:
        return None
    built, buffers = code.text(value), dict[str, str]()
    for number, made in enumerate(calls_named(ast.walk(value), *FACTORIES)):
        argument = getattr(code.parents[made], "arg", number)  # `loc=torch.zeros(3)`
        name, text = f"{attribute}_{argument}", code.text(made)
        if name in buffers:
            return None
        buffers[name] = text
        built = built.replace(text, f"self.{name}", 1)
    outside = parsed_expression(built)
    if not buffers or outside is None or not code.bound(statement).isdisjoint({*names_in(outside)} - {"self"}):
        return None  # what else it is built from has no value outside of this method
    lines = [f"self.register_buffer({name!r}, {text}, persistent=False)" for name, text in buffers.items()]
    draft = Draft(code)
    draft.rewrite(statement, "\n".join(lines))
    return _with_property(draft, owner, method, attribute, built)


def _class_attribute(code: Code, statement: ast.stmt, owner: ast.ClassDef | None, attribute: str) -> Fix | None:
    """`mask = torch.ones(3)` in the body of the class becomes a buffer that `__init__` registers."""
    value = getattr(statement, "value", None)
    if owner is None or value is None:
        return None
    begun = _base_constructor(owner)
    if begun is None:
        return None
    draft = Draft(code)
    draft.rewrite(statement, f"{attribute}: torch.Tensor")
    draft.insert_below(begun, f"self.register_buffer({attribute!r}, {code.text(value)}, persistent=False)")
    return fix(Message("register it as a buffer in `__init__`"), draft, "sure")


def _base_constructor(owner: ast.ClassDef) -> ast.stmt | None:
    """Return the statement `super().__init__()` of the constructor of a class."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for each in method.body:
                if "super()" in ast.unparse(each):
                    return each
    return None
