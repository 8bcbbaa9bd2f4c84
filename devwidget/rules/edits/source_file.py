"""Code: a source file as the rules read it, its statements and what is bound before each of them."""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Edit, apply_edits
from devwidget.records.site import Site, cell_label
from devwidget.records.syntax import (
    Function,
    defaults_of,
    is_inplace,
    names_in,
    nodes_in,
    own_lines,
    parsed_expression,
    targets_of,
    uses_of,
)
from devwidget.records.syntax import parsed as parsed_file

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass(frozen=True, eq=False)
class Code:
    """Lines and syntax tree of one file, or of as much of it as a site has kept."""

    file: str
    rows: tuple[str, ...]
    tree: ast.Module

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        found: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            found.update(dict.fromkeys(ast.iter_child_nodes(node), node))
        return found

    @functools.cached_property
    def quote(self) -> str:
        """The quote that most string literals of the file have; "" for a file without any."""
        quotes = Counter[bytes]()
        for node in nodes_in(self.tree, ast.Constant):
            if isinstance(node.value, str):
                row = self.rows[node.lineno - 1].encode()
                quotes[row[node.col_offset : node.col_offset + 1]] += 1
        single, double = quotes[b"'"], quotes[b'"']
        if single > double:
            return "'"
        if double:
            return '"'
        return ""

    def statements(self, line: int) -> list[ast.stmt]:
        """The innermost ones whose own lines, without the body of a compound one, include a line; several for `a(); b()`."""
        return self._statements.get(line, [])

    def statement(self, line: int, has: str = "") -> ast.stmt | None:
        """That of `statements` which has an expression in it, where there are several; None where that leaves not one."""
        here = self.statements(line)
        if len(here) > 1:
            here = [each for each in here if self.alike(each, has)]
        if len(here) == 1:
            return here[0]
        return None

    @functools.cached_property
    def _statements(self) -> dict[int, list[ast.stmt]]:
        """By line; of those that share it the innermost, which are walked to last, with those behind a semicolon."""
        found: dict[int, list[ast.stmt]] = {}
        for node in nodes_in(self.tree, ast.stmt):
            for line in own_lines(node):
                beside = [each for each in found.get(line, ()) if self.parents[each] is self.parents[node]]
                found[line] = [*beside, node]
        return found

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def scope(self, node: ast.AST) -> Scope:
        """Return the function, class or module around a node."""
        found: Scope | None = self._innermost(node, Scope)
        return found or self.tree

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method or body contains a node."""
        found: ast.ClassDef | None = self._innermost(node, ast.ClassDef)
        return found

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around an expression."""
        if isinstance(node, ast.stmt):
            return node
        found: ast.stmt | None = self._innermost(node, ast.stmt)
        return found

    def function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around a node."""
        found: Function | None = self._innermost(node, Function)
        return found

    def _innermost(self, node: ast.AST, kind: Any) -> Any:
        for outer in self.around(node):
            if isinstance(outer, kind):
                return outer
        return None

    def stores(self, scope: Scope, name: str) -> list[ast.Name]:
        """Where a scope, without those inside it, gives a variable a value."""
        stored = [node for node in uses_of(scope, name) if isinstance(node.ctx, ast.Store)]
        return [node for node in stored if self.scope(node) is scope]

    def text(self, node: ast.AST) -> str:
        """Source of a node."""
        return ast.get_source_segment("\n".join(self.rows), node) or ""

    def parts(self, statement: ast.stmt) -> Iterator[ast.AST]:
        """Return the nodes of a statement itself, without its body."""
        lines = own_lines(statement)
        for node in ast.walk(statement):
            if getattr(node, "lineno", lines.start) in lines:
                yield node

    def calls(self, statement: ast.stmt, text: str | None = None) -> list[ast.Call]:
        """The calls in a statement itself; of those, the ones that mean the same as a text."""
        nodes: Iterable[ast.AST] = self.parts(statement)
        if text is not None:
            nodes = self.alike(statement, text)
        return [node for node in nodes if isinstance(node, ast.Call)]

    def alike(self, statement: ast.stmt, text: str) -> list[ast.expr]:
        """The expressions in a statement that mean the same as a text."""
        wanted = parsed_expression(text)
        if wanted is None:
            return []
        dump = _loaded(wanted)
        found = []
        for node in self.parts(statement):
            if isinstance(node, ast.expr) and _loaded(node) == dump:
                found.append(node)
        return found

    def local_names(self, node: ast.AST) -> set[str]:
        """Names that the variables of a comprehension or lambda around a node, inside its statement, have."""
        found: set[str] = set()
        for outer in self.around(node):
            if isinstance(outer, ast.stmt):
                break
            found |= _names_bound_by(outer)
        return found

    def is_written(self, node: ast.expr) -> bool:
        """Whether an assignment, `del`, a method in place or `out=` writes into an expression, or into a view or part of it.

        A copy of such an expression would be written instead, and the program would continue with the old values. Assigning a
        new value to a name, `x = f(x)`, does not write into the old one.
        """
        parent = self.parents.get(node)
        match parent:
            case ast.keyword(arg="out"):
                return True
            case ast.AugAssign(target=target) if target is node:
                return True
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if value is node:
                return True
            case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()) if value is node:
                return True
            case ast.Subscript(value=value) if value is node:
                return self.is_written(parent)
            case ast.Attribute(value=value, attr=name) if value is node:
                call = self.parents.get(parent)
                if not isinstance(call, ast.Call) or call.func is not parent:
                    return self.is_written(parent)
                if name in _RETURNED:
                    return isinstance(self.parents.get(call), ast.Expr)
                return is_inplace(name) or self.is_written(call)
        return False

    def is_moved_as_part(self, node: ast.expr) -> bool:
        """Whether a module that is built is a part of one that the same expression builds and moves.

        `Linear(2, 2)` of `Sequential(Linear(2, 2), ReLU()).to(device)`.
        """
        if not _builds(node):
            return False
        for outer in self.around(node):
            match outer:
                case ast.Attribute(value=whole, attr=name) if whole is not node and name in PLACING_METHODS:
                    return True
                case ast.stmt():
                    break
        return False

    def bound(self, statement: ast.stmt) -> set[str]:
        """Names that are sure to have a value before a statement: arguments without the default None, and what every
        way to the statement has assigned; the same of the functions around."""
        found: set[str] = set()
        inner: ast.AST = statement
        functions = [each for each in self.around(statement) if isinstance(each, Function)]
        for outer in self.around(statement):
            if not functions or not isinstance(outer, ast.ClassDef):  # methods do not see the names of their class
                found |= _bound_above(inner, outer)
            match outer:
                case ast.For() | ast.AsyncFor() if inner in outer.body:
                    found.update(names_in(outer.target))
                case ast.With() | ast.AsyncWith():
                    for item in outer.items:
                        found.update(names_in(item.optional_vars))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found |= _arguments(outer)
                    if outer is functions[-1]:
                        return found
            inner = outer
        return found


def code_of_site(site: Site | None) -> Code | None:
    """The file of a site; of one that is not at hand the statement alone; None for a library."""
    if site is None or not site.is_users:
        return None
    return code_of(site.file, tuple(linecache.getlines(site.file))) or _read_kept_text(site)


def code_at(site: Site | None, has: str = "") -> tuple[Code, ast.stmt] | None:
    """The file of a site and the statement there, see `Code.statement`."""
    code = code_of_site(site)
    node = code.statement(site.line, has) if code is not None and site is not None else None
    if code is None or node is None:
        return None
    return code, node


def edited_code(file: str, rows: Sequence[str], edits: Iterable[Edit]) -> Code | None:
    """A file after some edits; None if it does not parse then."""
    return code_of(file, tuple(f"{row}\n" for row in apply_edits(rows, edits)))


@functools.lru_cache(maxsize=6)  # each keeps a syntax tree: a file, and what a few fixes would make of it
def code_of(file: str, lines: tuple[str, ...]) -> Code | None:
    """A file that is at hand; None if it has no lines or does not parse."""
    if not lines:
        return None
    tree = parsed_file("".join(lines))
    if tree is None:
        return None
    return Code(file, tuple(line.rstrip("\n") for line in lines), tree)


def has_torch(code: Code) -> bool:
    """Return whether a file can use the name `torch`; a notebook may import it in another cell."""
    return bool(cell_label(code.file)) or uses_name(code, "torch") or imported_as(code, "torch") == "torch"


def uses_name(code: Code, name: str) -> bool:
    """Return whether a file has a variable of a name."""
    return name in names_in(code.tree)


def imported_as(code: Code, full: str) -> str:
    """How the file writes what it imports at top level: `nn.Linear`, `Linear` for `torch.nn.Linear`; "" if it does not."""
    package, _, name = full.rpartition(".")
    known = imports_in(code.tree.body)
    if full in known:
        return known[full]
    if package in known:
        return f"{known[package]}.{name}"
    return ""


def imports_in(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """What statements import, by its full name: the name that it has in the file."""
    found: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                package = ""
            case ast.ImportFrom(names=names):
                package = f"{node.module}."
            case _:
                continue
        for alias in names:
            found[f"{package}{alias.name}"] = alias.asname or alias.name
    return found


def _read_kept_text(site: Site) -> Code | None:
    rows = tuple(f"{row}\n" for row in site.text.split("\n"))
    if site.text:
        return code_of(site.file, ("\n",) * (site.line - 1) + rows)
    return None


def _loaded(node: ast.expr) -> str:
    """The dump of an expression as if it were read."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """The value that a call passes by a keyword; None if it does not."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


def inner_names(statement: ast.stmt) -> set[str]:
    """Variables of the comprehensions and lambdas in a statement: before it they mean nothing, or something else."""
    return set[str]().union(*map(_names_bound_by, ast.walk(statement)))


def _names_bound_by(node: ast.AST) -> set[str]:
    match node:
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            found = set[str]()
            for part in node.generators:
                found.update(names_in(part.target))
            return found
        case ast.Lambda(args=given):
            return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return set()


def _bound_above(inner: ast.AST, outer: ast.AST) -> set[str]:
    """Names that the statements above one in its block have bound for sure."""
    found: set[str] = set()
    for block in _blocks(outer):
        if inner in block:
            for each in block[: block.index(inner)]:
                found.update(_sure(each))
    return found


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _sure(node: ast.stmt) -> Iterator[str]:
    """Names that a statement has bound for sure once it is over."""
    if not _is_none(getattr(node, "value", None)):
        for target in targets_of(node):
            if isinstance(target, ast.Name | ast.Starred | ast.Tuple | ast.List):
                yield from names_in(target)
    if isinstance(node, ast.With | ast.AsyncWith):
        for each in node.body:
            yield from _sure(each)


def _arguments(function: Function) -> set[str]:
    """Arguments that are not None by their default or annotation."""
    args, defaults = function.args, defaults_of(function)
    found = set[str]()
    for each in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        may_be_none = each.annotation is not None and "None" in ast.unparse(each.annotation)
        if not may_be_none and not _is_none(defaults.get(each.arg)):
            found.add(each.arg)
    return found


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _builds(node: ast.AST) -> bool:
    """Whether an expression calls a class, by its name."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2][:1].isupper()


_RETURNED = frozenset({"requires_grad_", "detach_", "share_memory_"})
"""Methods that change no values, and return their tensor: a copy does as well where what they return is used."""


def root_of(name: str) -> str:
    """`batch` of `batch.images[0]`."""
    return name.split(".")[0].split("[")[0]
