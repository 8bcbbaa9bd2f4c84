"""What the source text says: the statement at a line, the call inside it, and where a name was assigned."""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from devwidget.records.site import Site

INITIALISERS = ("__init__", "reset_parameters", "setup")
MOVES = frozenset({"to", "cuda", "cpu", "xpu", "hpu", "ipu", "mps", "type", "half", "float", "double", "bfloat16"})
"""Methods of a tensor that return the moved or cast one and leave the tensor itself as it is."""


_CELL = re.compile(r"^<ipython-input-|ipykernel_\d+")


@dataclass(frozen=True, slots=True)
class _Parsed:
    lines: tuple[str, ...]
    tree: ast.Module
    statements: tuple[ast.stmt, ...]
    """Outer ones first."""


_parsed: dict[str, tuple[int, _Parsed | None]] = {}


def _file(filename: str) -> _Parsed | None:
    """Lines and syntax tree; None where there is no source or it does not parse (a cell with magics)."""
    lines = linecache.getlines(filename)
    known = _parsed.get(filename)
    if known is not None and known[0] == hash(tuple(lines)):
        return known[1]
    try:
        parsed = _parse(lines) if lines else None
    except SyntaxError:
        parsed = None
    _parsed[filename] = (hash(tuple(lines)), parsed)
    return parsed


def _parse(lines: list[str]) -> _Parsed:
    tree = ast.parse("".join(lines))
    return _Parsed(tuple(lines), tree, tuple(node for node in ast.walk(tree) if isinstance(node, ast.stmt)))


def _own_lines(node: ast.stmt) -> range:
    """Lines of a statement without the body of a compound one."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    last = body[0].lineno - 1 if body and isinstance(body[0], ast.stmt) else node.end_lineno or node.lineno
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return range(first, max(last, node.lineno) + 1)


def _statement(parsed: _Parsed, line: int) -> ast.stmt | None:
    around = [node for node in parsed.statements if line in _own_lines(node)]
    return around[-1] if around else None


def statement_text(filename: str, line: int) -> str:
    """The whole statement at a line, dedented; just the line where the file does not parse; "" without source."""
    parsed = _file(filename)
    node = _statement(parsed, line) if parsed else None
    if parsed is None or node is None:
        return linecache.getline(filename, line).strip()
    rows = _own_lines(node)
    return textwrap.dedent("".join(parsed.lines[rows.start - 1 : rows.stop - 1])).rstrip()


def segment(filename: str, where: tuple[int, int, int, int]) -> str:
    """The text between two positions; columns count UTF-8 bytes, as Python's positions do."""
    first, last, start, end = where
    rows = [row.encode() for row in linecache.getlines(filename)[first - 1 : last]]
    if not rows:
        return ""
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return b"".join(rows).decode()


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    """What a statement assigns to, tuples opened."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def _site(filename: str, parsed: _Parsed, node: ast.stmt, function: str) -> Site:
    return Site(filename, node.lineno, statement_text(filename, node.lineno), function)


def assignment(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line that assigns `name`, in the same function if it does, else at top level."""
    parsed = _file(filename)
    if parsed is None:
        return None
    scopes: list[tuple[str, ast.AST]] = [("<module>", parsed.tree)]
    scopes += [(n.name, n) for n in ast.walk(parsed.tree) if _is_function(n) and before in _lines_of(n)]
    for function, scope in reversed(scopes):
        found = [n for n in _statements(scope) if n.lineno < before and _assigns(n, name)]
        if found:
            return _site(filename, parsed, max(found, key=lambda n: n.lineno), function)
    return None


def cell_assignment(name: str) -> Site | None:
    """The last cell of the notebook that assigns a variable at its top level."""
    for filename in reversed([file for file in linecache.cache if _CELL.search(file)]):
        site = assignment(filename, name, 1_000_000_000)
        if site is not None and site.function == "<module>":
            return site
    return None


def assigned_call(statement: str) -> tuple[str, str]:
    """Source and function name of the call in `x = f(...)`; ("", "") if it is none."""
    try:
        body = ast.parse(statement).body
    except SyntaxError:
        return "", ""
    node = getattr(body[0], "value", None) if len(body) == 1 else None
    if not isinstance(node, ast.Call):
        return "", ""
    op = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return ast.get_source_segment(statement, node) or "", op


def first_parameter(filename: str, line: int) -> str:
    """The first parameter after `self` or `ctx` of the function around a line."""
    parsed = _file(filename)
    around = [n for n in ast.walk(parsed.tree) if _is_function(n) and line in _lines_of(n)] if parsed else []
    names = [a.arg for a in around[-1].args.args if a.arg not in ("self", "ctx")] if around else []
    return names[0] if names else ""


def attribute_assignment(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where the methods of a class first say `self.attribute = ...`, `__init__` before the others."""
    parsed = _file(filename)
    if parsed is None:
        return None
    for owner in [n for n in ast.walk(parsed.tree) if isinstance(n, ast.ClassDef) and n.name == class_name]:
        methods = [n for n in owner.body if _is_function(n)]
        for method in sorted(methods, key=lambda m: m.name != "__init__"):
            for node in _statements(method):
                if any(_is_self(target, attribute) for target in _targets(node)):
                    return _site(filename, parsed, node, method.name)
        for node in owner.body:
            if _assigns(node, attribute):
                return _site(filename, parsed, node, class_name)
    return None


def attribute_read(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where a method of a class first reads `self.attribute`; the initialisers are not asked."""
    parsed = _file(filename)
    owners = [n for n in ast.walk(parsed.tree) if isinstance(n, ast.ClassDef) and n.name == class_name] if parsed else []
    methods = [m for owner in owners for m in owner.body if _is_function(m) and m.name not in INITIALISERS]
    reads = [n for m in methods for n in ast.walk(m) if isinstance(n, ast.Attribute) and _is_self(n, attribute)]
    node = _statement(parsed, reads[0].lineno) if reads and parsed is not None else None
    return _site(filename, parsed, node, class_name) if node is not None and parsed is not None else None


def made_by(filename: str, factory: str) -> Site | None:
    """The first statement of a file that assigns what a call of `factory` gives, such as `rng = torch.Generator()`."""
    parsed = _file(filename)
    for node in ast.walk(parsed.tree) if parsed is not None else ():
        if parsed is not None and isinstance(node, ast.Assign) and any(_calls(part, factory) for part in ast.walk(node.value)):
            return _site(filename, parsed, node, "")
    return None


def _calls(node: ast.AST, factory: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == factory


def discarded_move(filename: str, line: int) -> Site | None:
    """The statement at a line, if it is a move whose result nobody keeps: `x.to(device)`, alone."""
    parsed = _file(filename)
    node = _statement(parsed, line) if parsed else None
    if parsed is None or not isinstance(node, ast.Expr):
        return None
    value = node.value.elt if isinstance(node.value, ast.ListComp) else node.value
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVES
    return Site(filename, line, statement_text(filename, line)) if called else None


def uncalled_move(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line that names a move of a variable without calling it: `x.cuda`."""
    parsed = _file(filename)
    nodes = ast.walk(parsed.tree) if parsed is not None else ()
    found = [n for n in nodes if isinstance(n, ast.Expr) and n.lineno < before and _names_move(n.value, name)]
    line = max((n.lineno for n in found), default=0)
    return Site(filename, line, statement_text(filename, line)) if line else None


def unkept_move(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line, in the same function, that moves a variable and throws the result away."""
    parsed = _file(filename)
    if parsed is None:
        return None
    functions = [n for n in ast.walk(parsed.tree) if _is_function(n) and before in _lines_of(n)]
    above = [n for n in _statements(functions[-1] if functions else parsed.tree) if n.lineno < before]
    for node in sorted(above, key=lambda n: -n.lineno):
        if _assigns(node, name):
            return None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _names_move(node.value.func, name):
            return Site(filename, node.lineno, statement_text(filename, node.lineno))
    return None


def _names_move(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in MOVES and ast.unparse(node.value) == name


def relied_on_writes(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where a method other than `__init__` writes `self.attribute`, if the class reads it too."""
    parsed = _file(filename)
    owners = [n for n in ast.walk(parsed.tree) if isinstance(n, ast.ClassDef) and n.name == class_name] if parsed else []
    for owner in owners:
        methods = [n for n in owner.body if _is_function(n) and n.name not in INITIALISERS]
        writes = [(n, m) for m in methods for n in _statements(m) if any(_is_self(t, attribute) for t in _targets(n))]
        reads = [n for m in methods for n in ast.walk(m) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)]
        read = any(_is_self(n, attribute) for n in reads) or any(isinstance(n, ast.AugAssign) for n, _ in writes)
        if writes and read and parsed is not None:
            node, method = writes[0]
            return _site(filename, parsed, node, method.name)
    return None


def last_return(filename: str, class_name: str, method: str) -> Site | None:
    """The last `return` of a method."""
    parsed = _file(filename)
    owners = [n for n in ast.walk(parsed.tree) if isinstance(n, ast.ClassDef) and n.name == class_name] if parsed else []
    methods = [m for owner in owners for m in owner.body if _is_function(m) and m.name == method]
    returns = [n for m in methods for n in _statements(m) if isinstance(n, ast.Return)]
    return _site(filename, parsed, returns[-1], method) if returns and parsed is not None else None


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _lines_of(node: ast.AST) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a scope, not those of functions and classes inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
        if not _is_function(node) and not isinstance(node, ast.ClassDef | ast.expr):
            yield from _statements(node)


def _assigns(node: ast.stmt, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in _targets(node))


def _is_self(target: ast.expr, attribute: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )
