"""What the source text says: the statement at a line, the call inside it, and where a name was assigned."""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from collections.abc import Iterator

from devwidget.capture.source_code.source_index import MOVES as MOVES
from devwidget.capture.source_code.source_index import FileIndex, index_of, targets
from devwidget.records.site import Site, cells
from devwidget.records.syntax import blocks, parsed, parsed_statement

INITIALISERS = ("__init__", "reset_parameters", "setup")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def statement_text(filename: str, line: int) -> str:
    """The whole statement at a line, dedented; just the line where the file does not parse; "" without source."""
    index = index_of(filename)
    rows = index.statement(line) if index is not None else None
    if index is None or rows is None:
        return linecache.getline(filename, line).strip()
    first, last = rows
    return textwrap.dedent("".join(index.lines[first - 1 : last])).rstrip()


def segment(filename: str, where: tuple[int, int, int, int]) -> str:
    """The text between two positions; columns count UTF-8 bytes, as Python's positions do."""
    first, last, start, end = where
    rows = [row.encode() for row in linecache.getlines(filename)[first - 1 : last]]
    if not rows:
        return ""
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return b"".join(rows).decode()


def site_at(filename: str, line: int, function: str = "") -> Site:
    """The statement that begins at a line."""
    return Site(filename, line, statement_text(filename, line), function)


def assignment(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line that assigns `name`, in the same function if it does, else at top level."""
    index = index_of(filename)
    if index is None:
        return None
    for number in (*index.functions(before), -1):
        line = index.assignment(number, name, before)
        if line:
            return site_at(filename, line, index.scopes[number].name if number >= 0 else "<module>")
    return None


def cell_assignment(name: str) -> Site | None:
    """The last cell of the notebook that assigns a variable at its top level."""
    for filename in reversed(cells()):
        site = assignment(filename, name, 1_000_000_000)
        if site is not None and site.function == "<module>":
            return site
    return None


def assigned_call(statement: str) -> tuple[str, str]:
    """Source and function name of the call in `x = f(...)`; ("", "") if it is none."""
    node = getattr(parsed_statement(statement), "value", None)
    if not isinstance(node, ast.Call):
        return "", ""
    op = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return ast.get_source_segment(statement, node) or "", op


def first_parameter(filename: str, line: int) -> str:
    """The first parameter after `self` or `ctx` of the function around a line."""
    index = index_of(filename)
    around = next(index.functions(line), None) if index is not None else None
    parameters = index.scopes[around].parameters if index is not None and around is not None else None
    return next((name for name in parameters or () if name not in ("self", "ctx")), "")


def attribute_assignment(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where the methods of a class first say `self.attribute = ...`, `__init__` before the others."""
    for owner in _classes(filename, class_name):
        for method in sorted(_methods(owner), key=lambda m: m.name != "__init__"):
            for node in statements_of(method):
                if any(_is_self(target, attribute) for target in targets(node)) or _registers(node, attribute):
                    return site_at(filename, node.lineno, method.name)
        for node in owner.body:
            if any(isinstance(target, ast.Name) and target.id == attribute for target in targets(node)):
                return site_at(filename, node.lineno, class_name)
    return None


def _registers(node: ast.stmt, attribute: str) -> bool:
    """`self.register_buffer('attribute', ...)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return False
    registers = call.func.attr in ("register_buffer", "register_parameter") and _is_self(call.func, call.func.attr)
    return registers and isinstance(call.args[0], ast.Constant) and call.args[0].value == attribute


def attribute_read(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where a method of a class first reads `self.attribute`; the initialisers are not asked."""
    for owner in _classes(filename, class_name):
        for method in _methods(owner):
            reads = (n for n in ast.walk(method) if isinstance(n, ast.Attribute) and _is_self(n, attribute))
            read = next(reads, None) if method.name not in INITIALISERS else None
            if read is not None:
                return site_at(filename, _first_line(filename, read.lineno), class_name)
    return None


def made_by(filename: str, factory: str) -> Site | None:
    """The first statement of a file that assigns what a call of `factory` gives, such as `rng = torch.Generator()`."""
    for number, line in enumerate(linecache.getlines(filename), 1):
        node = parsed_statement(statement_text(filename, number)) if f".{factory}(" in line else None
        if isinstance(node, ast.Assign) and any(_calls(part, factory) for part in ast.walk(node.value)):
            return site_at(filename, _first_line(filename, number))
    return None


def _calls(node: ast.AST, factory: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == factory


def discarded_move(filename: str, line: int) -> Site | None:
    """The statement at a line, if it is a move whose result nobody keeps: `x.to(device)`, alone."""
    text = statement_text(filename, line)
    node = parsed_statement(text)
    if not isinstance(node, ast.Expr):
        return None
    value = node.value.elt if isinstance(node.value, ast.ListComp) else node.value
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVES
    return Site(filename, line, text) if called else None


def uncalled_move(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line that names a move of a variable without calling it: `x.cuda`."""
    index = index_of(filename)
    moves = [move for move in index.moves if move.line < before and move.name == name] if index is not None else []
    line = max((move.line for move in moves if not move.is_called), default=0)
    return site_at(filename, line) if line else None


def unkept_move(filename: str, name: str, before: int) -> Site | None:
    """The last statement above a line, in the same function, that moves a variable and throws the result away."""
    index = index_of(filename)
    if index is None:
        return None
    scope = next(index.functions(before), -1)
    moves = [move for move in index.moves if move.scope == scope and move.line < before and move.name == name]
    line = max((move.line for move in moves if move.is_called), default=0)
    return site_at(filename, line) if line > index.assignment(scope, name, before) else None


def relied_on_writes(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where a method other than `__init__` writes `self.attribute`, if the class reads it too."""
    for owner in _classes(filename, class_name):
        methods = [method for method in _methods(owner) if method.name not in INITIALISERS]
        writes = [(n, m) for m in methods for n in statements_of(m) if any(_is_self(t, attribute) for t in targets(n))]
        reads = (n for m in methods for n in ast.walk(m) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
        if writes and (any(isinstance(n, ast.AugAssign) for n, _ in writes) or any(_is_self(n, attribute) for n in reads)):
            node, method = writes[0]
            return site_at(filename, node.lineno, method.name)
    return None


def last_return(filename: str, class_name: str, method: str) -> Site | None:
    """The last `return` of a method."""
    methods = [m for owner in _classes(filename, class_name) for m in _methods(owner) if m.name == method]
    returns = [n for m in methods for n in statements_of(m) if isinstance(n, ast.Return)]
    return site_at(filename, returns[-1].lineno, method) if returns else None


def returned_by(site: Site | None) -> Site | None:
    """For `home = last_card()`: the last `return` of that function, if the same file defines it at its top level."""
    call = assigned_call(site.text)[0] if site is not None else ""
    index = index_of(site.file) if site is not None else None
    name = call.partition("(")[0]
    for scope in index.scopes if index is not None and name.isidentifier() else ():
        if scope.name == name and scope.outer < 0 and scope.parameters is not None and index is not None and site is not None:
            for line in range(scope.last, scope.first, -1):
                text = statement_text(site.file, line)
                if text.startswith("return ") and index.first[line] == line:
                    return Site(site.file, line, text, name)
    return None


def named_move(filename: str, method: str, before: int) -> Site | None:
    """The last statement above a line that keeps a move without calling it: `clip = waveform.cuda`."""
    for line in range(min(before, len(linecache.getlines(filename))), 0, -1):
        if f".{method}" in linecache.getline(filename, line):
            text = statement_text(filename, line)
            value = getattr(parsed_statement(text), "value", None)
            if isinstance(value, ast.Attribute) and value.attr == method:
                return site_at(filename, _first_line(filename, line))
    return None


def read_outside(filename: str, class_name: str, attribute: str) -> bool:
    """Whether a file reads `something.attribute` outside of a class."""
    index = index_of(filename)
    if index is None:
        return False
    own = {line for scope in index.classes(class_name) for line in range(scope.first, scope.last + 1)}
    for number, line in enumerate(index.lines, 1):
        if number not in own and f".{attribute}" in line:
            node = parsed_statement(statement_text(filename, number))
            reads = (n for n in ast.walk(node) if isinstance(n, ast.Attribute)) if node is not None else ()
            if any(n.attr == attribute and isinstance(n.ctx, ast.Load) for n in reads):
                return True
    return False


def first_write(filename: str, class_name: str, attribute: str) -> Site | None:
    """Where a method other than `__init__` first writes `self.attribute`."""
    for owner in _classes(filename, class_name):
        for method in _methods(owner):
            for node in statements_of(method) if method.name not in INITIALISERS else ():
                if any(_is_self(target, attribute) for target in targets(node)):
                    return site_at(filename, node.lineno, method.name)
    return None


def _classes(filename: str, name: str) -> Iterator[ast.ClassDef]:
    """The classes of that name, parsed by themselves, with the lines of the file."""
    index = index_of(filename)
    for scope in index.classes(name) if index is not None else ():
        node = _class("".join(_under_if(index, scope.first, scope.last)), scope.first) if index is not None else None
        if node is not None:
            yield node


def _under_if(index: FileIndex, first: int, last: int) -> Iterator[str]:
    """Lines that parse as they are indented: dedenting them would change texts of several lines inside."""
    if index.lines[first - 1][:1].isspace():
        yield "if True:\n"
    yield from index.lines[first - 1 : last]


def definition(filename: str, first: int, name: str) -> ast.stmt | None:
    """The function or class of a name whose lines, with its decorators, begin at `first`; parsed by itself."""
    index = index_of(filename)
    if index is None:
        return None
    found = next((each for each in index.scopes if each.name == name and index.first[each.first] == first), None)
    return _definition("".join(_under_if(index, found.first, found.last)), found.first) if found is not None else None


def definition_around(filename: str, line: int) -> ast.stmt | None:
    """The innermost function around a line."""
    index = index_of(filename)
    number = next(index.functions(line), None) if index is not None else None
    if index is None or number is None:
        return None
    found = index.scopes[number]
    return _definition("".join(_under_if(index, found.first, found.last)), found.first)


def _class(text: str, first: int) -> ast.ClassDef | None:
    node = _definition(text, first)
    return node if isinstance(node, ast.ClassDef) else None


@functools.lru_cache(maxsize=64)
def _definition(text: str, first: int) -> ast.stmt | None:
    tree = parsed(text, deep=True)
    if tree is None:
        return None
    outer = tree.body[0]
    node = outer.body[0] if isinstance(outer, ast.If) else outer
    ast.increment_lineno(node, first - node.lineno)
    return node


def _methods(owner: ast.ClassDef) -> list[_Function]:
    return [node for node in owner.body if isinstance(node, _Function)]


def statements_of(scope: _Function) -> Iterator[ast.stmt]:
    """Statements of a function in order, not those of functions and classes inside it."""
    waiting = scope.body[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            waiting += [*blocks(node)][::-1]


def _first_line(filename: str, line: int) -> int:
    """The line on which the statement at a line begins."""
    index = index_of(filename)
    rows = index.statement(line) if index is not None else None
    return rows[0] if rows is not None else line


def _is_self(target: ast.expr, attribute: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )
