"""Parse a piece of source. Returns nothing if it does not parse, or is nested too deeply."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

DEEPEST = 80
"""Maximum nesting of a tree for recursive functions. A call in a chain takes two."""

LARGEST = 2**20
"""Maximum characters of parsed source: 20,000 lines, whose tree takes 200 MB while it is read."""

_TRIES = 10


def parsed(text: str, *, deep: bool = False) -> ast.Module | None:
    """Return the tree of whole statements; `deep` allows any nesting, for callers without recursion."""
    if len(text) > LARGEST:
        return None
    try:
        tree = _parse_again(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # magics, null bytes, and what nests too deeply for Python
        return None
    if tree is not None and (deep or is_shallow(tree)):
        return tree
    return None


def _parse_again(text: str) -> ast.Module | None:
    """Parse again: Python 3.11 and 3.12 count the depth of a tree for all threads at once, and fail if two of them parse."""
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return None


def parsed_statement(text: str, line: int = 1) -> ast.stmt | None:
    """Return the single statement of a text that begins at a line; None for none or several."""
    tree = parsed(text)
    if tree is None or len(tree.body) != 1:
        return None
    if line != 1:
        return ast.increment_lineno(tree.body[0], line - 1)
    return tree.body[0]


def parsed_expression(text: str, line: int = 1) -> ast.expr | None:
    """Return the expression of a text at a line. Columns count in the text without surrounding spaces."""
    text = text.strip()
    node = parsed_statement(text, line)
    if node is None and "\n" in text:  # a part of an expression in brackets may continue on the next line
        node = parsed_statement(f"(\n{text}\n)", line - 1)
    if isinstance(node, ast.Expr):
        return node.value
    return None


def parsed_operation(text: str, line: int = 1) -> ast.AST | None:
    """Return the expression of a text, or its statement: `x += y` is an operation too."""
    return parsed_expression(text, line) or parsed_statement(text.strip(), line)


def is_shallow(node: ast.AST) -> bool:
    """Return whether recursive functions, such as `ast.unparse`, can process a tree."""
    level: list[ast.AST] = [node]
    for _ in range(DEEPEST):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
        if not level:
            return True
    return False


def nodes_in(tree: ast.AST | None, *kinds: type[Node]) -> list[Node]:
    """Return the nodes of these kinds in a tree, its root included, outer ones first; [] without a tree."""
    found: list[Node] = []
    if tree is not None:
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                found.append(node)
    return found


def names_in(tree: ast.AST | None) -> list[str]:
    """Return the names of the variables in a tree; [] without one."""
    return [part.id for part in nodes_in(tree, ast.Name)]


def uses_of(tree: ast.AST, name: str) -> list[ast.Name]:
    """Return the places in a tree that read or write a variable."""
    return [part for part in nodes_in(tree, ast.Name) if part.id == name]


def texts_in(tree: ast.AST) -> list[str]:
    """Return the string literals in a tree."""
    return [part.value for part in nodes_in(tree, ast.Constant) if isinstance(part.value, str)]


def argument_names(scope: ast.AST) -> set[str]:
    """Return the names of the arguments of a function, `*args` and `**kwargs` included; nothing for all else."""
    if isinstance(scope, Function):
        return {each.arg for each in nodes_in(scope.args, ast.arg)}
    return set()


def defaults_of(function: Function) -> dict[str, ast.expr]:
    """Return the defaults of a function by the names of its arguments."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    last = zip(reversed(plain), reversed(args.defaults), strict=False)
    found: dict[str, ast.expr] = {}
    for argument, default in (*last, *zip(args.kwonlyargs, args.kw_defaults, strict=True)):
        if default is not None:
            found[argument.arg] = default
    return found


def arguments_in(call: ast.AST | None) -> list[ast.expr]:
    """Return the arguments of a call, by position and by name; [] for all else."""
    if not isinstance(call, ast.Call):
        return []
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def name_of_called(node: ast.Call) -> str:
    """Return `zeros` for `torch.zeros(3)` and `zeros(3)`; "" for a call of an unnamed object."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return getattr(node.func, "id", "")


def calls_named(nodes: Iterable[ast.AST], *names: str) -> Iterator[ast.Call]:
    """Yield the calls of functions and methods of these names."""
    for node in nodes:
        if isinstance(node, ast.Call) and name_of_called(node) in names:
            yield node


def builds(call: ast.Call, name: str) -> bool:
    """Return whether a call makes an object of a class: `nn.Embedding(9, 4)` or `nn.Embedding.from_pretrained(vectors)`."""
    if name_of_called(call) == name:
        return True
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner)):
            return owner == name
    return False


def inner_statements(node: Any) -> Iterator[ast.stmt]:
    """Yield the statements directly inside a compound one, in order."""
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from getattr(part, "body", ())
    for name in ("orelse", "finalbody"):
        yield from getattr(node, name, ())


def own_lines(node: ast.stmt) -> range:
    """Return the lines of a statement without the body of a compound one."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if body and isinstance(body[0], ast.stmt):
        last = body[0].lineno - 1
    else:
        last = node.end_lineno or node.lineno
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return range(first, max(last, node.lineno) + 1)


def owner_text(node: ast.expr) -> str:
    """Return `cache` for `cache`, `cache[key]`, `*cache` and `cache.setdefault(key, [])`; "" for other expressions."""
    while True:
        match node:
            case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case ast.Name() | ast.Attribute() if is_shallow(node):
                return ast.unparse(node)
            case _:
                return ""


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Return the targets of a statement, with tuples opened."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        found = [node.target]
    parts: list[ast.expr] = []
    for target in found:
        if isinstance(target, ast.Tuple | ast.List):
            parts += target.elts
        else:
            parts.append(target)
    return parts


def is_self_attribute(node: ast.AST | None, attribute: str = "", self_name: str = "self") -> bool:
    """Return whether a node is `self.attribute` (any attribute if None), where the method calls its object `self_name`."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name
    return is_own and attribute in ("", getattr(node, "attr", ""))


def assigns_self_attribute(node: ast.AST, attribute: str) -> bool:
    """Return whether a statement assigns `self.attribute`, alone or among others."""
    return any(is_self_attribute(target, attribute) for target in targets_of(node))


def can_name(name: ast.AST, attribute: str) -> bool:
    """Return whether an expression such as `'scale0'` or `f'scale{i}'` is the name of an attribute."""
    if isinstance(name, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in name.values]
        return {*parts} != {".+"} and re.fullmatch("".join(parts), attribute) is not None
    return isinstance(name, ast.Constant) and name.value == attribute


def is_inplace(name: str) -> bool:
    """Return whether an operation writes into its first operand, by its name: `add_`, `__iadd__`, `__setitem__`."""
    is_special = name.startswith("__")
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not is_special)
