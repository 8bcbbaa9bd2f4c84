"""Made on the host: what a factory makes on the CPU at every call or step, and one line copies to a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression, targets_of
from devwidget.records.trace import Operand, Trace, UserMove
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, Scope, code_at, root_of
from devwidget.rules.found import Found

LEAST_BYTES = 4096
"""Of one copy: below a page making it costs as much as copying it, and programs are full of such."""
_FIXED = frozenset({
    "arange", "bartlett_window", "blackman_window", "eye", "full", "hamming_window", "hann_window", "kaiser_window", "linspace",
    "logspace", "ones", "tril_indices", "triu_indices", "zeros",
})  # fmt: skip
_RANDOM = frozenset({"normal", "rand", "randint", "randn", "randperm"})
_UNARY = frozenset({
    "abs", "bool", "contiguous", "cos", "cumsum", "detach", "double", "exp", "expand", "fill_", "flatten", "flip", "float",
    "half", "int", "log", "long", "mul_", "neg", "normal_", "permute", "repeat", "reciprocal", "reshape", "sin", "sqrt",
    "squeeze", "t", "transpose", "tril", "tril_", "triu", "triu_", "type", "uniform_", "unsqueeze", "view",
})  # fmt: skip
"""Functions of one tensor: whatever else they are given is no data of the host."""
_PURPOSES = frozenset({"device", "generator", "out", "pin_memory", None})
"""Keywords of somebody who thought about where it is made."""


def find_remade(trace: Trace) -> Iterator[Found]:
    """Lines of the model that copy what was made for this call, and lines around it that do so at most steps."""
    lines: dict[object, list[UserMove]] = {}
    for each in trace.crossings:
        if each.made is not None and not each.meant and each.bytes >= LEAST_BYTES:
            lines.setdefault(each.site, []).append(each)
    for copies in lines.values():
        in_model, steps = copies[0].module is not None, len({each.step for each in copies})
        if (in_model and trace.steps < 2) or (steps > 1 and 2 * steps > trace.steps):
            yield from _judge_line(copies, in_model=in_model)


def _judge_line(copies: list[UserMove], *, in_model: bool) -> Iterator[Found]:
    first, made = copies[0], copies[0].made
    assert made is not None
    call = parsed_expression(made.birth_call)
    if not isinstance(call, ast.Call) or not _is_plain(call) or not (path := _Path(first, made)).is_pure:
        return
    random = made.birth_op in _RANDOM
    if random and not in_model and not _is_sized_like_data(call):
        return  # it stands for data, which does come from the host
    facts = {"call": made.birth_call, "bytes": first.bytes, "source": first.source, "target": first.target}
    headline = Message("`{call}`, {bytes} bytes, is made on {source} and copied to {target} at every call", **facts)
    if not in_model:
        facts["count"] = len(copies)
        headline = Message("`{call}`, {bytes} bytes, is made on {source} and copied to {target} {count} times", **facts)
    yield Found(
        first,
        headline,
        why=Message("the copy takes time on the bus and in the host, and the GPU can make the tensor itself"),
        birth=made.birth,
        fixes=_list_fixes(path, call, random=random),
        notes=(Message("made on the GPU it has other random numbers"),) if random else (),
        severity="info",
    )


def _list_fixes(path: _Path, call: ast.Call, *, random: bool) -> Iterator[Fix | None]:
    yield path.write_edit()
    yield Fix(Message("make it on the GPU, with `device=`"))
    if not random and not any(isinstance(node, ast.Name | ast.Call) for arg in call.args for node in ast.walk(arg)):
        yield Fix(Message("or make it once, and register it as a buffer"), confidence="choice")


def _is_plain(call: ast.Call) -> bool:
    return not _PURPOSES & {keyword.arg for keyword in call.keywords}


def _is_sized_like_data(call: ast.Call) -> bool:
    """`torch.randn(x.shape)`: noise for a batch, and no batch of its own."""
    nodes = [node for arg in (*call.args, *(each.value for each in call.keywords)) for node in ast.walk(arg)]
    asked = any(isinstance(node, ast.Attribute) and node.attr in ("shape", "size") for node in nodes)
    return asked or any(isinstance(node, ast.Name) and node.id == "len" for node in nodes)


class _Path:
    """From the call that makes a tensor to the one that moves it, as the source tells.

    Args:
        copy: made by the line that moves it.
        made: what it moves, with its birth.
    """

    def __init__(self, copy: UserMove, made: Operand) -> None:
        self.move: ast.Call | None = None
        used, born = code_at(copy.site), code_at(made.birth)
        if born is not None:
            makers = born[0].alike(born[1], made.birth_call)
        else:
            makers = []
        self.is_pure = False
        if used is None or born is None or not makers:
            return
        self.code, self._born = born
        self._function = made.birth.function if made.birth is not None else ""
        self._whole = _whole_chain(self.code, makers[0])
        self._own = [node for node in ast.walk(self._whole) if isinstance(node, ast.Call) and _is_factory(node)]
        self._near = used[0].file == born[0].file and used[1] is born[1]
        moves = [each for each in _moves_in(*used) if self._is_it(_subject_of(each), *used)]
        self.is_pure = bool(moves) and not any(_is_cached(code.scope(each)) for code, each in (used, born))
        self.move = moves[0] if moves and used[0].file == born[0].file else None

    def _is_it(self, node: ast.expr | None, code: Code, statement: ast.stmt) -> bool:
        """Whether an expression is the tensor as it was made, and not something computed from it and from data of the host."""
        if code.file == self.code.file and node is self._whole:
            return True
        if isinstance(node, ast.Name):
            given = [each for each in ast.walk(code.scope(statement)) if isinstance(each, ast.Assign) and
                     ast.unparse(each.targets[0]) == node.id and each.lineno < statement.lineno]  # fmt: skip
            return len(given) == 1 and _is_read_by(code, given[0], statement) and self._is_it(given[0].value, code, statement)
        elsewhere = code.file != self.code.file or code.scope(statement) is not self.code.scope(self._born)
        return isinstance(node, ast.Call) and elsewhere and _last_name(node) == self._function and self._is_returned()

    def _is_returned(self) -> bool:
        """Whether its function hands it out as it is."""
        outer, scope = self.code.parents.get(self._whole), self.code.scope(self._born)
        ends = [each for each in ast.walk(scope) if isinstance(each, ast.Return)]
        if outer in ends:
            return True
        if not isinstance(outer, ast.Assign) or len(ends) != 1 or ends[0].value is None:
            return False
        return ast.unparse(ends[0].value) == ast.unparse(outer.targets[0]) and _is_read_by(self.code, outer, ends[0])

    def write_edit(self) -> Fix | None:
        """`device=` in the calls that make it; the move goes where it does nothing else."""
        device = _device_of(self.move)
        if self.move is None or not device or not all(map(_is_plain, self._own)):
            return None
        if not self._near and not self._has_value(device):
            return None
        draft = Draft(self.code)
        for each in self._own:
            draft.keyword(each, "device", device)
        if self._near and len(self.move.args) + len(self.move.keywords) <= 1:
            draft.drop_method(self.move)
        return fix(Message("make it there"), draft)

    def _has_value(self, device: str) -> bool:
        node = parsed_expression(device)
        return isinstance(node, ast.Constant) or root_of(device) in self.code.bound(self._born)


def _is_cached(scope: Scope) -> bool:
    """Whether a function runs once for each of its arguments."""
    return any("cache" in ast.unparse(each) for each in getattr(scope, "decorator_list", ()))


def _moves_in(code: Code, statement: ast.stmt) -> Iterator[ast.Call]:
    for node in code.parts(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PLACING_METHODS:
            yield node


def _subject_of(move: ast.Call) -> ast.expr | None:
    """`x` of `x.to(device)`."""
    if isinstance(move.func, ast.Attribute):
        return move.func.value
    return None


def _is_read_by(code: Code, given: ast.Assign, reader: ast.stmt) -> bool:
    """Whether nothing else reads the variable of an assignment up to this statement."""
    (only, *more) = targets_of(given)
    if more or not isinstance(only, ast.Name):
        return False
    reads = [n for n in ast.walk(code.scope(given)) if isinstance(n, ast.Name) and n.id == only.id and
             given.lineno < n.lineno <= reader.lineno]  # fmt: skip
    return bool(reads) and all(code.statement_of(each) is reader for each in reads)


def _device_of(move: ast.Call | None) -> str:
    """What the call is told as its device, where that is sure to be none: "" for a tensor, whose dtype is meant, too."""
    if move is None or not isinstance(move.func, ast.Attribute):
        return ""
    told = [*(k.value for k in move.keywords if k.arg == "device"), *move.args[:1]]
    if not told:
        if move.func.attr not in ("to", "cpu"):
            return repr(move.func.attr)
        return ""
    text = ast.unparse(told[0])
    if isinstance(told[0], ast.Constant):
        if isinstance(told[0].value, str):
            return text
        return ""
    if text.lower().rpartition(".")[2].startswith("dev"):
        return text
    return ""


def _last_name(call: ast.Call) -> str:
    """`zeros` of `torch.zeros(3)`."""
    named = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    if isinstance(named, str):
        return named
    return getattr(named, "id", "")


def _is_factory(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node) in _FIXED | _RANDOM


def _whole_chain(code: Code, node: ast.expr) -> ast.expr:
    """The largest expression around a call that is computed from such calls and from constants alone."""
    parent = code.parents.get(node)
    if isinstance(parent, ast.Attribute):  # a method, of which the call stands above
        call = code.parents.get(parent)
        if isinstance(call, ast.Call) and call.func is parent and _is_pure(call):
            return _whole_chain(code, call)
        return node
    if isinstance(parent, ast.expr) and _is_pure(parent):
        return _whole_chain(code, parent)
    return node


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression makes a tensor of nothing that is in one already."""
    if _is_factory(node):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _UNARY:
        subject = node.args[0] if ast.unparse(node.func.value) == "torch" and node.args else node.func.value
        return _is_pure(subject)
    if isinstance(node, ast.BinOp):
        return _are_pure(node.left, node.right)
    if isinstance(node, ast.Compare):
        return _are_pure(node.left, *node.comparators)
    if isinstance(node, ast.UnaryOp):
        return _is_pure(node.operand)
    return isinstance(node, ast.Subscript) and _is_pure(node.value) and _is_constant(node.slice)


def _are_pure(*sides: ast.expr) -> bool:
    return all(_is_pure(side) or _is_constant(side) for side in sides) and any(map(_is_pure, sides))


def _is_constant(node: ast.expr) -> bool:
    """Numbers, None, slices of them, and `float("-inf")`."""
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return all(name == "float" for name in names) and not any(isinstance(each, ast.Attribute) for each in ast.walk(node))
