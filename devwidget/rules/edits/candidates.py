"""Candidates: the edits that may bring a tensor and the call that needs it together, in the order in which they are offered.

A candidate is a function of a case that returns a fix, or None if it does not apply. It is in the file of what it does
(create it there, move it where it is used, move it where it enters, move the module), and its name in a table below.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import calls_named, nodes_in, targets_of
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.modules import build_owner_there, build_there, pass_device
from devwidget.rules.edits.moves_on_entry import move_in_loop, move_to_called_module, move_what_was_handed_out
from devwidget.rules.edits.moves_where_made import create_in_helper, create_there, is_right_elsewhere, move_value
from devwidget.rules.edits.moves_where_used import move_where_used
from devwidget.rules.edits.refusals import refused
from devwidget.rules.edits.source_file import Code, code_at, root_of

Candidate = Callable[[Case], Fix | None]
_READERS = ("np", "numpy", "plt", "print", "len", "float", "pd")
"""What takes numbers as it takes tensors, by the root of its name."""


def stay_there(case: Case) -> Fix | None:
    """What a line of the step takes away, and nothing computes with where it goes, stays where it was."""
    stray, target = case.stray, case.fault.target
    if not stray.from_move:
        return None
    away = [each for each in case.trace.crossings if (each.site, each.target) == (stray.birth, stray.device)]
    if not away:
        return None
    in_loop = _has_common_loop(stray.birth, case.fault.site)  # its first turn moves it before the first step
    for each in away:
        is_of_step = each.step >= 0 or in_loop
        if not is_of_step or each.source != target or each.computed or each.meant:
            return None
    return mended(stray.birth, Message("stay on the device"), Draft.leave_out, stray.device)


def _has_common_loop(one: Site | None, other: Site | None) -> bool:
    return not set(_loops_around(one)).isdisjoint(_loops_around(other))


def _loops_around(site: Site | None) -> Iterator[ast.AST]:
    at = code_at(site)
    if at is None:
        return
    code, statement = at
    for each in code.around(statement):
        if isinstance(each, ast.For | ast.While):
            yield each


def collect_on_host(case: Case) -> Fix | None:
    """`losses.append(loss)` becomes `losses.append(loss.item())`, or `loss.detach().cpu()`, if the list is plotted or saved."""
    at, used = code_at(case.stray.listed), code_at(case.fault.site, case.fault.expression)
    if at is None or used is None or not case.is_wanted_on_host:
        return None
    code, statement = at
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner), args=[item])):
            name = ast.unparse(owner)
        case _:
            return None
    uses = [(each, node) for each in {code, used[0]} for node in _uses(each, name)]
    if case.stray.requires_grad and any(_goes_backward(*use) for use in uses):
        return None
    draft, text = Draft(code), ".cpu()"
    if not case.stray.shape and all(_reads_numbers(*use) for use in uses):
        text = ".item()"
    elif case.stray.requires_grad:
        text = ".detach().cpu()"
    draft.append(item, text)
    return fix(Message("keep a copy on the CPU where the list is filled"), draft)


def _reads_numbers(code: Code, node: ast.expr) -> bool:
    """Whether a use passes the whole list to what takes numbers as it takes tensors."""
    call = code.parents.get(node)
    return isinstance(call, ast.Call) and node in call.args and root_of(ast.unparse(call.func)) in _READERS


def _goes_backward(code: Code, node: ast.expr) -> bool:
    """Whether the statement of a use calls `backward`, or another one does on what it assigns: the items need their graphs."""
    statement = code.statement_of(node)
    if statement is None or "backward" in code.text(statement):
        return statement is not None
    computed = [f"{ast.unparse(target)}.backward" for target in targets_of(statement)]
    return any(each in row for each in computed for row in code.rows)


def _uses(code: Code, name: str) -> list[ast.expr]:
    """Where a file reads the list, other than to append to it."""
    found: list[ast.expr] = []
    for node in nodes_in(code.tree, ast.Name, ast.Attribute, ast.Subscript):
        is_read = isinstance(getattr(node, "ctx", None), ast.Load) and ast.unparse(node) == name
        if is_read and getattr(code.parents.get(node), "attr", "") != "append":
            found.append(node)
    return found


def move_with_its_object(case: Case) -> Fix | None:
    """The method `to` of an object moves one of its tensors, and by a line like that one the misplaced tensor, too."""
    site, name = case.stray.forgotten, case.stray.expression.rpartition(".")[2]

    def change(draft: Draft, statement: ast.stmt) -> None:
        (target, *_) = targets_of(statement)
        if isinstance(target, ast.Attribute):
            draft.insert_below(statement, re.sub(rf"\b{target.attr}\b", name, draft.code.text(statement)))

    return mended(site, Message("move it with the other tensors of its object"), change)


def create_unless_placed(case: Case, *, is_far: bool = False) -> Fix | None:
    """Do not create a tensor on the host for one call, nor again where code names its GPU.

    What the tensor is computed from may be created far from its use, in a function that knows no tensor there.
    """
    if case.is_wanted_on_host or is_right_elsewhere(case):
        return None
    made = create_there(case)
    if made is not None and _is_far_from_use(case, made) == is_far:
        return made
    return None


def _is_far_from_use(case: Case, made: Fix) -> bool:
    """Whether a function on the way may compute with other tensors of the host."""
    birth, site = case.stray.birth, case.fault.site
    names_device = repr(str(case.fault.target)) in made.code
    if birth is None or site is None or not names_device or not case.stray.computed or _fails_elsewhere(case):
        return False
    is_in_function = birth.function not in ("", "<module>")
    return is_in_function and (birth.file, birth.function) != (site.file, site.function)


def _fails_elsewhere(case: Case) -> bool:
    """Whether tensors of the same line also fail in other expressions, so that a move in one of them is not enough."""
    uses = set()
    for fault in case.trace.faults:
        if any(each.stray and each.birth == case.stray.birth for each in fault.operands):
            uses.add((fault.site, fault.expression))
    return len(uses) > 1


def name_device_for_library(case: Case) -> Fix | None:
    """`summary(model, size)` gets the `device=` of the model, where the library would choose another one."""
    left_out = case.fault.nearby.library
    if left_out is None:
        return None

    def change(draft: Draft, statement: ast.stmt) -> None:
        for call in calls_named(draft.code.parts(statement), left_out.function):
            draft.keyword(call, "device", repr(str(case.stray.device)))

    return mended(left_out.site, Message("name the device of the model in the call"), change)


TENSOR: tuple[Candidate, ...] = (
    stay_there,
    collect_on_host,
    move_with_its_object,
    pass_device,
    build_owner_there,
    move_in_loop,
    move_what_was_handed_out,
    create_unless_placed,
    move_to_called_module,
    move_where_used,
    functools.partial(create_unless_placed, is_far=True),
    create_in_helper,
    move_value,
)
"""For what is neither a parameter nor a buffer."""


def tensor_candidates(case: Case) -> Iterator[Fix | None]:
    """The edits for a tensor, best first."""
    candidates = TENSOR
    if case.must_be_detached:
        candidates = collect_on_host, move_where_used
    for candidate in candidates:
        yield candidate(case)


def parameter_candidates(case: Case) -> Iterator[Fix | None]:
    """The edits for a parameter or a buffer: its module, or the whole model, is not where its inputs are."""
    held, is_loaded = case.stray.held, case.stray.birth_op == "load"
    yield name_device_for_library(case)
    if is_loaded:
        yield create_there(case)
    elif held is not None and held.left_behind is None:
        if held.how == "parameter" and not case.is_between_gpus:
            yield build_owner_there(case)
        yield move_where_used(case)
        yield create_there(case)
        return
    if case.is_between_gpus:
        yield move_where_used(case)  # a model that is split on purpose
    built = None
    if held is not None and case.literal and not is_loaded:
        built = build_there(case, held)
        if built is not None and refused(built, case.fault):
            built = None
        yield built
        # A parameter that was put into a module which has moved was made by the line of its values.
        if held.how == "buffer" or built is None:
            yield create_there(case)
        if built is None:
            yield move_value(case)
    is_variable = case.stray.expression.isidentifier()  # what `forward` calls by one name is not the parameter itself
    if built is None and not is_variable:
        yield move_where_used(case)
