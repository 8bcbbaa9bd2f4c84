"""What the source text says: the statement at a line, the call inside it, and where a name was assigned."""

from __future__ import annotations

import ast
import linecache
import textwrap

from devwidget.capture.source_code.source_index import MOVES as MOVES
from devwidget.capture.source_code.source_index import index_of
from devwidget.records.site import Site, cells
from devwidget.records.syntax import parsed_expression, parsed_statement


def statement_text(filename: str, line: int) -> str:
    """The whole statement at a line, dedented; just the line where the file does not parse; "" without source."""
    index = index_of(filename)
    rows = index.statement(line) if index is not None else None
    if index is None or rows is None:
        return linecache.getline(filename, line).strip()
    first, last = rows
    if first == last:  # as nearly all are
        return index.lines[first - 1].lstrip(" \t").rstrip()
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


def last_assignment(filename: str, name: str, line: int) -> Site | None:
    """The last statement that assigns `name` in the function around a line, else at top level, wherever it stands."""
    index = index_of(filename)
    for number in (*index.functions(line), -1) if index is not None else ():
        found = index.assignment(number, name, len(index.lines) + 1) if index is not None else 0
        if found and index is not None:
            return site_at(filename, found, index.scopes[number].name if number >= 0 else "<module>")
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


def is_moved_on(expression: str, statement: str) -> bool:
    """Whether a statement moves what an expression in it gives: `table[index].to(device)`."""
    wanted, tree = parsed_expression(expression), parsed_statement(statement)
    if wanted is None or tree is None:
        return False
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=moved, attr=name)) if name in MOVES:
                if ast.dump(moved) == ast.dump(wanted):
                    return True
    return False


def first_parameter(filename: str, line: int) -> str:
    """The first parameter after `self` or `ctx` of the function around a line."""
    index = index_of(filename)
    around = next(index.functions(line), None) if index is not None else None
    parameters = index.scopes[around].parameters if index is not None and around is not None else None
    return next((name for name in parameters or () if name not in ("self", "ctx")), "")


def made_by(filename: str, factory: str) -> Site | None:
    """The first statement of a file that assigns what a call of `factory` gives, such as `rng = torch.Generator()`."""
    for number, line in enumerate(linecache.getlines(filename), 1):
        node = parsed_statement(statement_text(filename, number)) if f".{factory}(" in line else None
        if isinstance(node, ast.Assign) and any(_calls(part, factory) for part in ast.walk(node.value)):
            return site_at(filename, first_line(filename, number))
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


def returned_by(site: Site | None) -> Site | None:
    """The last `return` of `last_card` for the line `home = last_card()`, if the same file defines it at its top level."""
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
                return site_at(filename, first_line(filename, line))
    return None


def first_line(filename: str, line: int) -> int:
    """The line on which the statement at a line begins."""
    index = index_of(filename)
    rows = index.statement(line) if index is not None else None
    return rows[0] if rows is not None else line
