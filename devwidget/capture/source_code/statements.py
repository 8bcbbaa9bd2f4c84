"""Statements in the source: the one at a line, the call inside it, and where a name was assigned."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterable, Iterator
from types import CodeType

from devwidget.capture.source_code.source_files import read_file, statements_of
from devwidget.records.device import PLACING_METHODS
from devwidget.records.site import Site, cells
from devwidget.records.syntax import (
    Function,
    builds,
    is_shallow,
    name_of_called,
    nodes_in,
    owner_text,
    parsed_statement,
    targets_of,
)

MOVES = frozenset({*PLACING_METHODS, "ipu", "type", "half", "float", "double", "bfloat16"})
"""Methods of a tensor that return a moved or cast copy and leave the tensor unchanged."""


def statement_text(filename: str, line: int) -> str:
    """Return the whole statement at a line, dedented; just the line if the file does not parse; "" without source."""
    file = read_file(filename)
    rows = file.statement_lines(line)
    if not rows:
        return linecache.getline(filename, line).strip()
    return textwrap.dedent("".join(file.lines[rows.start - 1 : rows.stop - 1])).rstrip()


def segment(filename: str, where: tuple[int, int, int, int]) -> str:
    """Return the text between two positions; columns count UTF-8 bytes, as Python's positions do."""
    first, last, start, end = where
    rows = [row.encode() for row in linecache.getlines(filename)[first - 1 : last]]
    if not rows:
        return ""
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return b"".join(rows).decode()


def site_at(filename: str, line: int, function: str = "") -> Site:
    """Return the place of the statement that begins at a line."""
    return Site(filename, line, statement_text(filename, line), function)


def definition_site(code: CodeType) -> Site:
    """Return the first line of a function, a decorator if it has one."""
    file, line = code.co_filename, code.co_firstlineno
    return Site(file, line, linecache.getline(file, line).strip(), code.co_name)


def assignment(filename: str, name: str, before: int) -> Site | None:
    """Return the last statement above a line that assigns `name`, in the same function if any does, else at top level."""
    return next(assignments(filename, name, before), None)


def assignments(filename: str, name: str, before: int) -> Iterator[Site]:
    """Yield the statements above a line that assign `name`, the last one first, in the same function if any does."""
    file = read_file(filename)
    for scope in (*file.functions_around(before), file.tree):
        lines = [line for line in file.assigned_lines(scope, name) if line < before]
        for line in reversed(lines):
            yield site_at(filename, line, getattr(scope, "name", "<module>"))
        if lines:
            return


def conditions(filename: str, line: int, later: int) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests of the branches around a line that a later line is not in, and what each was if the line has run."""
    for node in read_file(filename).statements:
        if isinstance(node, ast.If):
            for branch, result in ((node.body, True), (node.orelse, False)):
                if _covers(branch, line) and not _covers(branch, later):
                    yield node.test, result


def _covers(block: list[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


_GROWING = frozenset({"append", "appendleft", "extend", "add", "update", "insert", "setdefault"})


def keeping_line(filename: str, line: int, path: str) -> Site | None:
    """Return the statement that puts values where an expression such as `self.history` leads.

    Args:
        filename: file of the variable; "" for one of the notebook, whose newest cell counts.
        line: a line of the function whose variable it is; 0 at top level.
        path: the expression.
    """
    name = path.partition("[")[0]
    files: Iterable[str] = [filename]
    if not filename:
        files = reversed(cells())
    for each in files:
        found = _keeping_line(each, line, name)
        if found is not None:
            return found
    return None


def _keeping_line(filename: str, line: int, name: str) -> Site | None:
    """Return the only statement that adds to it, else the last one that assigns it."""
    file = read_file(filename)
    own: list[Function | ast.Module] = [*file.functions_around(line), file.tree]
    names = {name, f"self.{name.partition('.')[2]}"}
    functions = [each for each in file.scopes if isinstance(each, Function)]
    others = [each for each in functions if each not in own]
    if "." not in name:
        others = [each for each in others if not _has_own(each, name)]
    users = [*own, *others]
    for is_sought in (_grows, _accumulates):
        found = {node.lineno: each for each in users for node in statements_of(each) if is_sought(node, names)}
        if len(found) == 1:
            at, scope = found.popitem()
            return site_at(filename, at, getattr(scope, "name", "<module>"))
    if "." not in name:
        users = own
    for scope in users:
        lines = [node.lineno for node in statements_of(scope) if _assigns(node, names)]
        if lines:
            return site_at(filename, lines[-1], getattr(scope, "name", "<module>"))
    return None


def _has_own(function: Function, name: str) -> bool:
    """Return whether a function has a variable of its own of a name."""
    parameters = function.args
    given = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    return name in [each.arg for each in given] or any(_assigns(node, {name}) for node in statements_of(function))


def _accumulates(node: ast.stmt, names: set[str]) -> bool:
    """Return whether a statement computes a new value from the old one: `total += loss`."""
    if not _assigns(node, names):
        return False
    value = getattr(node, "value", None)
    inner = nodes_in(value, ast.Name, ast.Attribute)
    return isinstance(node, ast.AugAssign) or any(is_shallow(each) and ast.unparse(each) in names for each in inner)


def _grows(node: ast.stmt, names: set[str]) -> bool:
    """Return whether a statement adds to a container: `losses.append(loss)`, `cache[key] = value`."""
    if isinstance(node, ast.Expr):
        for part in ast.walk(node):
            match part:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _GROWING:
                    if owner_text(owner) in names:
                        return True
    return any(isinstance(target, ast.Subscript) and owner_text(target) in names for target in targets_of(node))


def _assigns(node: ast.stmt, names: set[str]) -> bool:
    return any(is_shallow(target) and ast.unparse(target) in names for target in targets_of(node))


def is_limited(filename: str, expression: str, items: int) -> bool:
    """Return whether a file compares the length of the container that an expression leads to with more than its present items.

    Args:
        filename: the file.
        expression: such as `buffer.rows`; an attribute is known by its last name.
        items: number of items; a limit without a number, `len(self.rows) < self.capacity`, counts as one.
    """
    name = expression.rpartition(".")[2]
    for node in ast.walk(read_file(filename).tree):
        if isinstance(node, ast.Compare):
            has_length = allows_more = False
            for side in (node.left, *node.comparators):
                match side:
                    case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=own) | ast.Attribute(attr=own)]) if own == name:
                        has_length = True
                    case ast.Constant(value=int(number)):
                        allows_more |= number > items
                    case ast.Name() | ast.Attribute():
                        allows_more = True
            if has_length and allows_more:
                return True
    return False


def cell_assignment(name: str) -> Site | None:
    """Return the last cell of the notebook that assigns a variable at its top level."""
    for filename in reversed(cells()):
        site = assignment(filename, name, 1_000_000_000)
        if site is not None and site.function == "<module>":
            return site
    return None


def assigned_call(statement: str) -> tuple[str, str]:
    """Return source and function name of the call in `x = f(...)`; ("", "") for other statements."""
    node = getattr(parsed_statement(statement), "value", None)
    if not isinstance(node, ast.Call):
        return "", ""
    return ast.get_source_segment(statement, node) or "", name_of_called(node)


def assigns_new(statement: str, name: str) -> bool:
    """Return whether a statement assigns a new object of a class: `x = Net(...)`, also `x = Net(...).cuda()`."""
    node = getattr(parsed_statement(statement), "value", None)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        node = node.func.value
    return isinstance(node, ast.Call) and builds(node, name)


def replacements(filename: str, attribute: str) -> Iterator[Site]:
    """Yield the lines that give an attribute of another object than `self` a value: `model.head = nn.Linear(8, 2)`."""
    for node in read_file(filename).statements:
        for target in targets_of(node):
            match target:
                case ast.Attribute(value=ast.Name(id="self")):
                    continue
                case ast.Attribute(attr=name) if name == attribute:
                    yield site_at(filename, node.lineno)


def first_parameter(filename: str, line: int) -> str:
    """Return the first parameter after `self` or `ctx` of the function around a line."""
    for function in read_file(filename).functions_around(line)[:1]:
        for parameter in function.args.args:
            if parameter.arg not in ("self", "ctx"):
                return parameter.arg
    return ""


def made_by(filename: str, factory: str) -> Site | None:
    """Return the one statement of a file that assigns the result of `factory`, such as `rng = torch.Generator()`."""
    lines = set()
    for node in read_file(filename).statements:
        if isinstance(node, ast.Assign):
            calls = nodes_in(node.value, ast.Call)
            lines |= {node.lineno for call in calls if name_of_called(call) == factory}
    if len(lines) != 1:
        return None
    return site_at(filename, lines.pop())


def named_move(filename: str, method: str) -> Site | None:
    """Return the last statement of a file that stores a move without calling it: `clip = waveform.cuda`."""
    for node in reversed(read_file(filename).statements):
        match node:
            case ast.Assign(value=ast.Attribute(attr=name)) if name == method:
                return site_at(filename, node.lineno)
    return None


def discarded_move(filename: str, line: int) -> Site | None:
    """Return the statement at a line, if it is a move whose result is discarded: `x.to(device)`, alone."""
    site = site_at(filename, line)
    node = parsed_statement(site.text)
    match node:
        case ast.Expr(value=ast.ListComp(elt=move)):
            node = ast.Expr(move)
    if node is not None and _name_moved(node):
        return site
    return None


def unkept_move(filename: str, name: str, before: int) -> Site | None:
    """Return the last statement above a line, in the same function, that moves a variable and discards the result.

    Or that names the move without calling it: `x.cuda`.
    """
    file = read_file(filename)
    scope = next(iter(file.functions_around(before)), file.tree)
    assigned = max((line for line in file.assigned_lines(scope, name) if line < before), default=0)
    for node in reversed([*statements_of(scope)]):
        if assigned < node.lineno < before and _name_moved(node) == name:
            return site_at(filename, node.lineno)
    return None


def _name_moved(node: ast.stmt) -> str:
    """Return `x` for the statements `x.to(device)` and `x.cuda`, which keep nothing."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)) | ast.Expr(value=ast.Attribute() as method):
            if method.attr in MOVES and is_shallow(method):
                return ast.unparse(method.value)
    return ""


def returned_by(site: Site | None) -> Site | None:
    """Return the last `return` of `last_card` for the line `home = last_card()`, if the same file defines it at top level."""
    if site is None:
        return None
    called = assigned_call(site.text)[0].partition("(")[0]
    for function in read_file(site.file).tree.body:
        if isinstance(function, Function) and function.name == called:
            return last_return(site.file, function)
    return None


def last_return(filename: str, function: Function) -> Site | None:
    """Return the last `return` of a function that returns something."""
    found = None
    for node in statements_of(function):
        if isinstance(node, ast.Return) and node.value is not None:
            found = site_at(filename, node.lineno, function.name)
    return found
