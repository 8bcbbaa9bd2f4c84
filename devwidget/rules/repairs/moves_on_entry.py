"""A move where a stray tensor came in, for one that was handed on or computed with before it failed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Fault, Given, Operand
from devwidget.rules.repairs.code import Code, Function, code_at, root_of
from devwidget.rules.repairs.devices import written_device
from devwidget.rules.repairs.edits import Draft, fix, mended
from devwidget.rules.repairs.refusals import IN_WORKERS


def on_entry(fault: Fault, stray: Operand) -> Fix | None:
    """`As = As.to(x.device)` at the head of the function that was given both, or after what last gave `As` a value there.

    What a function reads from an object is moved wherever it reads it: `self.scale[i].to(x.device)`. What a caller computed
    on the way into the call is moved there: `f(x, self.kernel(s).to(x.device))`.
    """
    given = stray.given
    at = code_at(given.site) if given is not None else None
    if given is None or at is None or given.kind == "module" or (stray.expression == given.name and given.site == fault.site):
        return None  # the failing line can move it as well
    code, statement = at
    function = code.scope(statement)
    if not isinstance(function, Function):
        return None
    draft = Draft(code)
    if isinstance(parsed_expression(given.name), ast.Call):
        _where_passed(draft, statement, given)
    elif "." in given.name:
        _where_read(draft, function, given)
    else:
        _where_given(draft, function, statement, given)
    return fix(Message("move it where it comes in"), draft)


def to_the_module(stray: Operand) -> Fix | None:
    """`reference(x.to(next(reference.parameters()).device))` for a model that is on another GPU as a whole.

    Its class is innocent: other models of it are where their inputs are.
    """
    given = stray.given if stray.given is not None and stray.given.kind == "module" else None

    def change(draft: Draft, statement: ast.stmt) -> None:
        for call in draft.code.parts(statement) if given is not None else ():
            if given is not None and isinstance(call, ast.Call) and ast.unparse(call.func) == given.beside[0]:
                for each in (*call.args, *(keyword.value for keyword in call.keywords)):
                    if ast.unparse(each) == given.name:
                        draft.append(each, f".to(next({given.beside[0]}.parameters()).device)")

    return mended(given.site, Message("move it where the module is called"), change) if given is not None else None


def in_the_loop(fault: Fault, stray: Operand) -> Fix | None:
    """`words = words.to(device)` at the head of the loop that took it from a loader, for what fails in a function below.

    Moved in `forward`, it would still be on the CPU where the loss needs it.
    """
    at, birth = code_at(stray.birth), stray.birth
    if at is None or birth is None or fault.site is None:
        return None
    loops = [
        each
        for each in _loops_over(at[0], at[1], birth.function)
        if _left_there(at[0], each, stray) and getattr(at[0].scope(each), "name", "<module>") != fault.site.function
    ]
    if len(loops) != 1 or loops[0].body[0].lineno == loops[0].lineno:
        return None
    name, draft = _left_there(at[0], loops[0], stray), Draft(at[0])
    draft.before(loops[0].body[0], f"{name} = {name}.to({written_device(at[0], loops[0].body[0], fault.target)})")
    return fix(Message("move it where it comes in"), draft)


def _loops_over(code: Code, birth: ast.stmt, function: str) -> Iterator[ast.For]:
    """The loop that took a tensor from a loader; of what a data set made in this process any loop of its file may be it."""
    if isinstance(birth, ast.For):
        yield birth
    elif function in IN_WORKERS:
        loops = (each for each in ast.walk(code.tree) if isinstance(each, ast.For))
        yield from (each for each in loops if code.scope(each) is not code.scope(birth))


def _left_there(code: Code, loop: ast.For, stray: Operand) -> str:
    """The variable of a loop that its body hands on and never gives another value: the stray's namesake, or the only one."""
    counted = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "enumerate"
    target = loop.target.elts[-1] if counted and isinstance(loop.target, ast.Tuple) else loop.target
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    inside = [node for each in loop.body for node in ast.walk(each) if isinstance(node, ast.Name) and node.id in names]
    names -= {node.id for node in inside if isinstance(node.ctx, ast.Store) or not _is_argument(code, node)}
    used = {node.id for node in inside} & names
    if stray.expression in used:
        return stray.expression
    return next(iter(used)) if len(used) == 1 and stray.birth is not None and stray.birth.line == loop.lineno else ""


def _is_argument(code: Code, node: ast.Name) -> bool:
    """Whether a name is handed to a call as it is, which a tensor may be and a dict or tuple of them is not moved by."""
    around = code.parents.get(node)
    return isinstance(around, ast.Call) and node in around.args


def _where_passed(draft: Draft, statement: ast.stmt, given: Given) -> None:
    for node in draft.code.alike(statement, given.name):
        draft.append(node, f".to({given.beside[0]}.device)")


def _where_given(draft: Draft, function: Function, statement: ast.stmt, given: Given) -> None:
    code = draft.code
    around = [statement, *code.around(statement)]
    inside = next(index for index, each in enumerate(function.body) if each in around)
    first = next(each for each in function.body if not _is_docstring(each))
    last = next((each for each in reversed(function.body[:inside]) if _stores(code, each, given.name)), None)
    place = function.body.index(last) + 1 if last is not None else function.body.index(first)
    device = _device(code, function.body[place], given, function.body[place:])
    changes = any(_stores(code, each, given.name) for each in function.body[inside:] if each is not statement)
    if changes or not device or (last is None and given.name not in code.bound(first)):
        return
    each = f"each.to({device}) for each in {given.name}"
    moved = {"": f"{given.name}.to({device})", "list": f"[{each}]", "tuple": f"tuple({each})"}[given.kind]
    move = f"{given.name} = {moved}"
    if last is None:
        draft.before(first, move)
    else:
        draft.after(last, move)


def _where_read(draft: Draft, function: Function, given: Given) -> None:
    code = draft.code
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and code.text(node) == given.name:
            around = code.parents.get(node)
            item = around if isinstance(around, ast.Subscript) and around.value is node else node
            reader = code.statement_of(node)
            device = _device(code, reader, given, function.body, function) if reader is not None else ""
            if device and isinstance(item.ctx, ast.Load) and not isinstance(code.parents.get(item), ast.Attribute):
                draft.append(item, f".to({device})")


def _device(code: Code, statement: ast.stmt, given: Given, among: Sequence[ast.stmt], function: Function | None = None) -> str:
    """An expression for the right device that is known before a statement; "" if there is none.

    Args:
        among: statements that must not give what it is read from a value; with `function` they may once, if it is no argument.
    """
    for name in given.beside:
        root = root_of(name)
        most = 0 if function is None else 1 - (root in _arguments(function))
        if root in code.bound(statement) and sum(_stores(code, each, root) for each in among) <= most:
            return f"{name}.device"
    return ""


def _arguments(function: Function) -> set[str]:
    return {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _stores(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement gives a variable of its own function a value."""
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name)
    return any(isinstance(node.ctx, ast.Store) and code.scope(node) is code.scope(statement) for node in stored)
