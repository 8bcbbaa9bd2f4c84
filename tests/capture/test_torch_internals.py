"""Private names of torch: all in files of that name, found at first use, and missed by name."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame

import devwidget
from devwidget import DevwidgetError
from devwidget.capture import torch_internals
from devwidget.gpus import torch_internals as gpus_internals
from devwidget.records.trace import Trace
from tests.older_torch import IS_OLDER
from tests.sampling import sample

PACKAGE = Path(devwidget.__file__).parent
NAMES = {
    **{name: path for table in torch_internals.NEEDED.values() for name, path in table.items()},
    **torch_internals.OPTIONAL,
}

EVERYWHERE = {
    **NAMES,
    **gpus_internals.NEEDED,
    **gpus_internals.DISTRIBUTED,
    "late": gpus_internals.EXPECTED,
}


PRIVATE = re.compile(r"torch(\.\w+)*\._(?!_)\w+(\.\w+)*")


def paths(source: ast.AST) -> Iterator[str]:
    """Every path that a file imports, reads or has as a text."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def private_paths(source: ast.AST) -> list[str]:
    return [path for path in paths(source) if PRIVATE.fullmatch(path)]


@functools.cache
def trees() -> dict[Path, ast.AST]:
    files = (file for file in PACKAGE.rglob("*.py") if file.name != "torch_internals.py")
    return {file: ast.parse(file.read_text("utf-8")) for file in files}


def test_private_names_of_torch_stand_in_files_of_that_name() -> None:
    assert {file.name: found for file, tree in trees().items() if (found := private_paths(tree))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch.overrides import _pop_mode",
        "import torch\nC = torch._C",
        'import sys\nsys.modules.get("torch._dynamo.eval_frame")',
    ],
)
def test_a_private_name_anywhere_else_would_be_seen(source: str) -> None:
    assert private_paths(ast.parse(source))
    assert not private_paths(ast.parse("import torch\ntorch.Tensor.__new__(module._parameters)"))


def own_names(trees: list[ast.AST]) -> set[str]:
    """What the package itself calls something, anywhere."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id in ("self", "cls") else set()
    return found


@functools.cache
def names_of_torch() -> set[str]:
    """What modules and classes of torch have, but for operators: a name that is only a text somewhere may be meant for one."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "torch" and module is not None]
    owners = [*modules, *(each for module in modules for each in list(vars(module).values()) if issubclass(type(each), type))]
    return {name for owner in owners for name in vars(owner) if not hasattr(torch.ops.aten, name)}


def foreign_names(tree: ast.AST, in_torch: set[str]) -> Iterator[str]:
    """Private names that a file reads from objects, whatever these are, and those of torch that it has as texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield from in_torch.intersection(node.value.split())


PYTHONS = set(
    "_asdict _fields _exit _getframe _current_frames _start_method _collections_abc _thread _apply _T _R"
    " _cache _collections _cuda _filters_mutated _local _replace".split()
)
"""Private names of Python's own library, and words that torch happens to use too."""

WIDGETS = {"_view_count"}
"""A trait of each widget, in the protocol of Jupyter's widgets."""


def unlisted(source: ast.AST, ours: set[str], in_torch: set[str]) -> set[str]:
    listed = {part for paths in EVERYWHERE.values() for path in paths.split() for part in path.split(".")}
    private = {name for name in foreign_names(source, in_torch) if re.fullmatch(r"_(?!devwidget)\w*[^_]|_\w*[^_]_", name)}
    return private - ours - listed - torch_internals.FIELDS - gpus_internals.PUT_IN - PYTHONS - WIDGETS


def test_every_private_name_that_is_read_from_an_object_is_listed() -> None:
    found = trees()
    ours, in_torch = own_names(list(found.values())), names_of_torch()
    assert {file.name: names for file, tree in found.items() if (names := unlisted(tree, ours, in_torch))} == {}


@pytest.mark.parametrize(
    "source",
    ["dynamo._callback_of_stance", "patched(dynamo, '_set_stance', wrap)", "for name in ('_global_backward_hooks',): pass"],
)
def test_a_private_name_that_is_not_listed_would_be_seen(source: str) -> None:
    assert unlisted(ast.parse(source), set(), names_of_torch() | {"_set_stance"})


def is_found(name: str) -> bool:
    try:
        return torch_internals.find_first(NAMES[name]) is not None
    except LookupError:
        return False


def test_this_torch_has_every_name() -> None:
    lacking = {name for name in NAMES.keys() - torch_internals.OPTIONAL.keys() if not is_found(name)}
    # docs/reference/versions.md says that ranks cannot answer on torch 2.8.
    assert lacking <= (torch_internals.NEEDED["answering for a rank"].keys() if IS_OLDER else set())


_WITHOUT = """
import sys, torch
from devwidget.capture import torch_internals
tables = (*torch_internals.NEEDED.values(), torch_internals.OPTIONAL)
names = {path for table in tables for paths in table.values() for path in paths.split()} - {"torch._C", "torch.Generator"}
ours = [name for name in sys.modules if name.split(".")[0] == "devwidget"]
for path in sorted(names):
    try:
        owner, last = torch_internals.owner_and_name(path)
        real = vars(owner)[last]
        delattr(owner, last)
    except (KeyError, TypeError, AttributeError, ImportError):
        continue  # a class of C++, or code: nothing that an import of ours reads by itself; or older torch has no such module
    for name in [name for name in sys.modules if name.split(".")[0] == "devwidget"]:
        del sys.modules[name]
    try:
        import devwidget
    finally:
        setattr(owner, last, real)
    print(path)
"""


@pytest.mark.process
@pytest.mark.slow
def test_devwidget_is_imported_whichever_private_name_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 30


_EACH_WITHOUT = """
import os, pathlib, sys, traceback
import torch, torch._dynamo.eval_frame, torch.export
from torch import nn
import devwidget, devwidget.api, devwidget.capture.recorder, devwidget.gpus
from devwidget.capture import torch_internals
model = nn.Linear(2, 2)
def plain():
    model(torch.ones(1, 2)).sum().backward()
def record():
    with devwidget.record() as recording:
        plain()
    return recording.trace.ops
def trace():
    return devwidget.trace(model, torch.ones(1, 2), loss_fn=torch.sum).ops
def simulate():
    with devwidget.simulate(1):
        return nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda")).is_cuda
package = pathlib.Path(devwidget.__file__).parent
def is_ours(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    file = pathlib.Path(last.filename)
    is_of_torch = last.name == "_find_absent"  # which says of a module of torch what Python would
    return package in file.parents and file.name != "torch_internals.py" and not is_of_torch
def outcome(call, path):
    try:
        return "ok" if call() else "empty"
    except devwidget.DevwidgetError as error:
        return "named" if path in str(error) else f"not named: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}" if is_ours(error) else "fails in torch"
def outcomes(path):
    try:
        owner, last = torch_internals.owner_and_name(path)
    except ImportError:
        return ["torch has not got it"]
    try:
        delattr(owner, last)
        plain()
    except Exception:
        return ["torch cannot be without"]
    return [outcome(call, path) for call in (record, trace, simulate)]
for path in sys.stdin.read().split():
    sys.stdout.flush()
    if not os.fork():
        print(path, *outcomes(path), sep="\t", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each name is missing in a process of its own")
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_whichever_private_name_is_missing_work_goes_on_or_the_name_is_told() -> None:
    more = (f"torch._dynamo.{name}" for name in ("eval_frame._stance", "eval_frame.DynamoStance", "set_stance", "export"))
    names = {path for paths in EVERYWHERE.values() for path in paths.split()} | {*more, "torch.compiler.set_stance"}
    done = subprocess.run([sys.executable, "-c", _EACH_WITHOUT], input="\n".join(sorted(names)), capture_output=True, text=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {path for path, *_ in rows} == names, done.stderr
    good = {"ok", "named", "fails in torch", "torch cannot be without", *(["torch has not got it"] if IS_OLDER else [])}
    assert [row for row in rows if not good.issuperset(row[1:])] == []
    assert sum(row[1] == "ok" for row in rows) > 60


@pytest.mark.parametrize("name", ["_callback_from_stance", "_stance"])
def test_without_a_private_name_of_the_compiler_a_recording_begins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(eval_frame, name)
    with devwidget.record() as recording:
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert recording.trace.ops
    said = [reason for reason in recording.trace.not_checked if f"`torch._dynamo.eval_frame.{name}`" in reason]
    assert len(said) == 1


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """A torch that has not got one name, in whatever place."""

    def remove(name: str) -> str:
        gone, find = NAMES[name].split(), torch_internals.find_path
        monkeypatch.delattr(torch_internals, name)

        def finding(path: str):
            if path in gone:
                raise AttributeError(path)
            return find(path)

        monkeypatch.setattr(torch_internals, "find_path", finding)
        monkeypatch.setattr(torch_internals, "_checked", set())
        return gone[0]

    return remove


def traced(restore: bool) -> Trace:
    return devwidget.trace(nn.Linear(2, 2), torch.ones(1, 2), restore=restore)


NEEDING = {
    "reading tensors": lambda: devwidget.snapshot(nn.Linear(2, 2)),
    "recording": lambda: traced(restore=False),
    "restoring": lambda: traced(restore=True),
}
LACKING = [(purpose, name) for purpose in NEEDING for name in torch_internals.NEEDED[purpose]]


@pytest.mark.parametrize(("purpose", "name"), sample(LACKING, every=8))
def test_what_torch_is_missing_is_said_before_anything_begins(purpose: str, name: str, without) -> None:
    path = without(name)
    with pytest.raises(DevwidgetError, match=re.escape(f"`{path}`")):
        NEEDING[purpose]()


def test_a_recording_needs_no_name_of_restoring(without) -> None:
    without("InferenceMode")
    assert traced(restore=False).ops


def test_every_missing_name_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"reading tensors": {"Gone": "torch._C._gone", "Lost": "torch._lost torch.lost"}}
    monkeypatch.setattr(torch_internals, "NEEDED", gone)
    monkeypatch.setattr(torch_internals, "_checked", set())
    with pytest.raises(DevwidgetError, match=r"has no `torch\._C\._gone`, `torch\._lost`, which reading tensors needs"):
        torch_internals.check_names("reading tensors")


def test_another_path_is_taken_where_the_first_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_internals, "NEEDED", {"recording": {"Moved": "torch._gone torch.nn.Linear"}})
    assert torch_internals.Moved is nn.Linear
    del torch_internals.Moved


def test_what_is_bound_at_import_is_none_where_torch_lacks_it(without) -> None:
    without("thread_object")
    assert torch_internals.find_optional("thread_object") is None
    assert torch_internals.find_optional("parse_key") is not None


def test_a_name_that_was_found_once_is_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch_internals.tracing_state
    monkeypatch.delattr(torch_internals, "__getattr__")
    assert torch_internals.tracing_state is first
