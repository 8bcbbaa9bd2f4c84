"""Repairs written into the user's own line, by its syntax tree; all functions give "" where that cannot be done."""

from __future__ import annotations

import ast

from devwidget.records.syntax import parsed, parsed_expression, parsed_statement

FACTORIES = frozenset(
    {
        "arange",
        "as_tensor",
        "asarray",
        "bartlett_window",
        "blackman_window",
        "complex",
        "empty",
        "empty_strided",
        "eye",
        "from_file",
        "full",
        "hamming_window",
        "hann_window",
        "kaiser_window",
        "linspace",
        "logspace",
        "new_empty",
        "new_full",
        "new_ones",
        "new_tensor",
        "new_zeros",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "range",
        "scalar_tensor",
        "sparse_coo_tensor",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    }
)
"""Torch functions that decide a device themselves and take it as `device=` (torch.overrides, 2.13)."""


def with_device(statement: str, call: str, op: str, device: str) -> str:
    """The statement with `device=...` in one of its calls.

    Args:
        statement: the user's statement.
        call: the source of the call inside it.
        op: the torch function that it calls.
        device: an expression.
    """
    node = _call(call)
    if node is None or op not in FACTORIES:
        return ""
    return _within(statement, call, _with_keyword(call, node, "device", device))


def moved_value(statement: str, device: str) -> str:
    """`x = f(...)` -> `x = f(...).to(device)` for an assignment to one name."""
    return cast_value(statement, f".to({device})")


def cast_value(statement: str, cast: str) -> str:
    """`x = f(...)` -> `x = f(...).float()` for an assignment to one name."""
    node = _assignment(statement)
    if node is None or not isinstance(node.value, ast.Call | ast.Name | ast.Attribute | ast.Subscript):
        return ""
    value = ast.get_source_segment(statement, node.value) or ""
    return _within(statement, value, f"{value}{cast}")


def is_container(statement: str) -> bool:
    """True for `batch = Batch(torch.ones(2))` or `parts = [torch.ones(2)]`: the name is not that of the tensor."""
    node = _assignment(statement)
    value = node.value if node is not None else None
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2][:1].isupper()
    return isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Set)


def moved_name(statement: str) -> str:
    """`x` of the statement `x.to(device)` or `x.cuda`."""
    node = parsed_expression(statement)
    method = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(method.value) if isinstance(method, ast.Attribute) else ""


def moved_from(statement: str) -> str:
    """`h` of the statement `parked = h.cpu()`."""
    node = _assignment(statement)
    value = node.value if node is not None else None
    is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    return ast.unparse(value.func.value) if is_call else ""  # type: ignore[union-attr]


def made_as_leaf(statement: str, device: str) -> str:
    """`x = torch.randn(4, requires_grad=True).cuda()` -> `x = torch.randn(4, device='cuda:0', requires_grad=True)`."""
    node = _assignment(statement)
    moved = node.value if node is not None else None
    inner = moved.func.value if isinstance(moved, ast.Call) and isinstance(moved.func, ast.Attribute) else None
    if moved is None or not isinstance(inner, ast.Call):
        return ""
    plain = ast.Call(inner.func, inner.args, [k for k in inner.keywords if k.arg not in ("requires_grad", "device")])
    call = ast.unparse(plain)
    return _spliced(statement, moved, f"{call[:-1]}, device={device!r}, requires_grad=True)")


def through_module(statement: str) -> str:
    """`x = wrapper.state_dict()` -> `x = wrapper.module.state_dict()`."""
    node = _assignment(statement)
    call = node.value if node is not None else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict"):
        return ""
    return _spliced(statement, call.func.value, f"{ast.unparse(call.func.value)}.module")


def replaced_keyword(statement: str, keyword: str, value: str) -> str:
    """The statement with the first such keyword of a call given another value."""
    tree = parsed(statement)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg == keyword:
            return _spliced(statement, node.value, value)
    return ""


def first_argument(call: str) -> str:
    """Source of the first argument of a call, or of what a method is called on."""
    node = _call(call)
    if node is None:
        return ""
    if node.args:
        return ast.get_source_segment(call.strip(), node.args[0]) or ""
    return ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def receiver(call: str) -> str:
    """Source of what a method is called on."""
    node = _call(call)
    return ast.get_source_segment(call.strip(), node.func.value) or "" if node and isinstance(node.func, ast.Attribute) else ""


def assigned_name(statement: str) -> str:
    """The one name, or `self.name`, that a statement assigns."""
    node = _assignment(statement)
    return ast.unparse(node.targets[0]) if node is not None else ""


def hands_on(statement: str) -> bool:
    """True for `self.mask = mask`: the value was made elsewhere."""
    node = _assignment(statement)
    return node is not None and isinstance(node.value, ast.Name | ast.Attribute)


def as_buffer(statement: str, name: str) -> str:
    """`self.mask = value` -> `self.register_buffer('mask', value, persistent=False)`."""
    node = _assignment(statement)
    if node is None or ast.unparse(node.targets[0]) != f"self.{name}":
        return ""
    value = ast.get_source_segment(statement, node.value)
    return f"self.register_buffer({name!r}, {value}, persistent=False)"


def as_module_list(statement: str, name: str) -> str:
    """`self.layers = [...]` -> `self.layers = nn.ModuleList([...])`, a dict likewise."""
    node = _assignment(statement)
    if node is None or ast.unparse(node.targets[0]) != f"self.{name}":
        return ""
    kind = "ModuleDict" if isinstance(node.value, ast.Dict | ast.DictComp) else "ModuleList"
    value = ast.get_source_segment(statement, node.value)
    return f"self.{name} = nn.{kind}({value})"


def replaced(statement: str, old: str, new: str) -> str:
    """The statement with one expression exchanged, found by its meaning, not by its letters."""
    tree, sought = parsed(statement), parsed_expression(old)
    if tree is None or sought is None:
        return ""
    wanted = ast.dump(sought)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and ast.dump(node) == wanted:
            segment = ast.get_source_segment(statement, node)
            return _spliced(statement, node, new) if segment else ""
    return ""


def _call(text: str) -> ast.Call | None:
    node = parsed_expression(text)
    return node if isinstance(node, ast.Call) else None


def _assignment(statement: str) -> ast.Assign | None:
    node = parsed_statement(statement)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node if isinstance(node.targets[0], ast.Name | ast.Attribute) else None
    return None


def _with_keyword(call: str, node: ast.Call, name: str, value: str) -> str:
    old = next((k.value for k in node.keywords if k.arg == name), None)
    if old is not None:
        return _spliced(call.strip(), old, value)
    head = call.strip()[:-1].rstrip().rstrip(",")
    glue = "" if head.endswith("(") else ", "
    return f"{head}{glue}{name}={value})"


def _spliced(text: str, node: ast.expr, new: str) -> str:
    """Text with one node's source exchanged; columns of the tree count UTF-8 bytes."""
    rows = [row.encode() for row in text.splitlines(keepends=True)]
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = b"".join(rows[:first]) + rows[first][: node.col_offset]
    after = rows[last][node.end_col_offset :] + b"".join(rows[last + 1 :])
    return (before + new.encode() + after).decode()


def _within(statement: str, old: str, new: str) -> str:
    """The statement with the exact text exchanged; the new text alone if the statement is laid out differently."""
    if not old or not new:
        return ""
    return statement.replace(old, new, 1) if old in statement else new
