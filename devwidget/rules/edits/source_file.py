"""Code: a source file as the rules read it, its statements and what is bound before each of them."""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Edit, apply_edits
from devwidget.records.site import Site, cell_label
from devwidget.records.syntax import Function, is_inplace, own_lines, parsed_expression, targets_of
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
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @functools.cached_property
    def quote(self) -> str:
        """The quote that most string literals of the file have; "" for a file without any."""
        quotes = Counter[bytes]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                row = self.rows[node.lineno - 1].encode()
                quotes[row[node.col_offset : node.col_offset + 1]] += 1
        if not quotes[b"'"] and not quotes[b'"']:
            return ""
        return "'" if quotes[b"'"] > quotes[b'"'] else '"'

    def statements(self, line: int) -> list[ast.stmt]:
        """The innermost ones whose own lines, without the body of a compound one, include a line; several for `a(); b()`."""
        return self._statements.get(line, [])

    def statement(self, line: int, has: str = "") -> ast.stmt | None:
        """That of `statements` which has an expression in it, where there are several; None where that leaves not one."""
        here = self.statements(line)
        if len(here) > 1:
            here = [each for each in here if has and self.alike(each, has)]
        return here[0] if len(here) == 1 else None

    @functools.cached_property
    def _statements(self) -> dict[int, list[ast.stmt]]:
        """By line; of those that share it the innermost, which are walked to last, with those behind a semicolon."""
        found: dict[int, list[ast.stmt]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt):
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
        return next((a for a in self.around(node) if isinstance(a, Scope)), self.tree)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method or body contains a node."""
        return next((a for a in self.around(node) if isinstance(a, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around an expression."""
        return next((a for a in (node, *self.around(node)) if isinstance(a, ast.stmt)), None)

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
        nodes = self.parts(statement) if text is None else self.alike(statement, text)
        return [node for node in nodes if isinstance(node, ast.Call)]

    def alike(self, statement: ast.stmt, text: str) -> list[ast.expr]:
        """The expressions in a statement that mean the same as a text."""
        wanted = parsed_expression(text) if text else None
        if wanted is None:
            return []
        dump = _loaded(wanted)
        return [node for node in self.parts(statement) if isinstance(node, ast.expr) and _loaded(node) == dump]

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
        for outer in self.around(node) if _builds(node) else ():
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
            for block in _blocks(outer) if not isinstance(outer, ast.ClassDef) or not functions else ():
                if inner in block:
                    found |= {name for each in block[: block.index(inner)] for name in _sure(each)}
            if isinstance(outer, ast.For | ast.AsyncFor) and inner in outer.body:
                found |= set(_names(outer.target))
            if isinstance(outer, ast.With | ast.AsyncWith):
                found |= {name for item in outer.items if item.optional_vars for name in _names(item.optional_vars)}
            if isinstance(outer, Function):
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
    tree = parsed_file("".join(lines)) if lines else None
    if tree is None:
        return None
    return Code(file, tuple(line.rstrip("\n") for line in lines), tree)


def has_torch(code: Code) -> bool:
    """Return whether a file can use the name `torch`; a notebook may import it in another cell."""
    if cell_label(code.file) or uses_name(code, "torch"):
        return True
    for node in code.tree.body:
        for alias in node.names if isinstance(node, ast.Import) else ():
            if (alias.asname or alias.name) == "torch":
                return True
    return False


def uses_name(code: Code, name: str) -> bool:
    """Return whether a file has a variable of a name."""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(code.tree))


def _read_kept_text(site: Site) -> Code | None:
    rows = tuple(f"{row}\n" for row in site.text.split("\n"))
    if site.text:
        return code_of(site.file, ("\n",) * (site.line - 1) + rows)
    return None


def _loaded(node: ast.expr) -> str:
    """The dump of an expression as if it were read."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """The variables that a node names."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def calls_in(node: ast.AST) -> list[ast.Call]:
    """The calls in a node."""
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """The value that a call passes by a keyword; None if it does not."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in names_in(target))


def inner_names(statement: ast.stmt) -> set[str]:
    """Variables of the comprehensions and lambdas in a statement: before it they mean nothing, or something else."""
    return {name for node in ast.walk(statement) for name in _names_bound_by(node)}


def _names_bound_by(node: ast.AST) -> set[str]:
    match node:
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return {name for part in node.generators for name in _names(part.target)}
        case ast.Lambda(args=given):
            return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return set()


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _sure(node: ast.stmt) -> Iterator[str]:
    """Names that a statement has bound for sure once it is over."""
    for target in targets_of(node):
        value = getattr(node, "value", None)
        if value is None or not _is_none(value):
            yield from _names(target) if isinstance(target, ast.Name | ast.Starred | ast.Tuple | ast.List) else ()
    if isinstance(node, ast.With | ast.AsyncWith):
        yield from (name for each in node.body for name in _sure(each))


def _arguments(function: Function) -> set[str]:
    args = function.args
    plain, keywords = [*args.posonlyargs, *args.args], args.kwonlyargs
    optional = {a.arg for a, d in zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True) if _is_none(d)}
    optional |= {a.arg for a, d in zip(keywords, args.kw_defaults, strict=True) if d is not None and _is_none(d)}
    optional |= {a.arg for a in (*plain, *keywords) if a.annotation is not None and "None" in ast.unparse(a.annotation)}
    return {a.arg for a in (*plain, *keywords)} - optional


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _builds(node: ast.AST) -> bool:
    """Whether an expression calls a class, by its name."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2][:1].isupper()


_RETURNED = frozenset({"requires_grad_", "detach_", "share_memory_"})
"""Methods that change no values, and return their tensor: a copy does as well where what they return is used."""


def root_of(name: str) -> str:
    """`batch` of `batch.images[0]`."""
    return name.split(".")[0].split("[")[0]
