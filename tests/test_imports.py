"""Who imports whom, against the table of layers; and what `import devwidget` loads."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(str(importlib.util.find_spec("devwidget").origin)).parent  # type: ignore[union-attr]


def words(text: str) -> set[str]:
    return set(text.split())


FOLDERS = words("records language capture memory gpus rules views report panel extras")
EVERYTHING = FOLDERS | words(
    """
    api recording allowed_findings live_model post_mortem call_trials trying fix_writer applied_fix
    saved_files magics cli pytest_plugin pytest_explainer integrations
    """
)


MAY_IMPORT = {
    "records": words(""),
    "capture": words("records"),
    "memory": words("records"),
    "gpus": words("records capture"),
    "rules": words("records memory"),
    "views": words("records memory"),
    "language": words("records"),
    "report": words("records views language"),
    "panel": words("records views report language"),
    "api": EVERYTHING,
    "saved_files": words("records"),  # the half of api that needs no torch
    "extras": EVERYTHING,
    "integrations": words(""),
    "recording": EVERYTHING,  # what `record` and `trace` run
    "call_trials": EVERYTHING,  # the trials that `explain` and `record` offer
    "allowed_findings": EVERYTHING,  # what `check` refuses
    "live_model": EVERYTHING,  # the live half of `show`, split from api
    "post_mortem": EVERYTHING,  # the half of `explain` that is not `trace`
    "fix_writer": EVERYTHING,  # the half of `%devwidget fix` that writes
    "applied_fix": EVERYTHING,  # the half of the panel that applies a fix
    "trying": EVERYTHING,  # the half of `trace` that tries fixes
    "magics": words("api records language"),  # records for the exceptions that it prints
    # all but api for what works without torch
    # and gpus: a process that inherits virtual GPUs begins them
    "cli": words("api records views report language gpus"),
    "__main__": words("cli"),
    "pytest_plugin": words("api records language pytest_explainer gpus"),  # gpus as for cli
    "pytest_explainer": words("api records report language"),  # the half of the plugin that is loaded when it is asked
    "__init__": EVERYTHING,
    "_version": words(""),
}
"""Layer -> the other layers that it may import."""

ONLY_IN = {"ipywidgets": {"panel", "extras"}, "anywidget": {"panel", "extras"}, "traitlets": {"panel"}, "plotly": {"panel"}}
"""Library -> the layers that may import it."""

WITHOUT_TORCH = words("saved_files records language memory rules views report panel")
HEAVY = ("plotly", "pandas", "ipywidgets", "anywidget", "traitlets", "IPython")


def layer_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(node: ast.AST, package: str) -> Iterator[str]:
    """Full names of everything imported below a node, except for type checkers."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1]]) if node.level else ""
        module = ".".join(part for part in (base, node.module) if part)
        yield from (f"{module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        if not only_for_types(node) or child in node.orelse:  # type: ignore[attr-defined]
            yield from imported(child, package)


def imports() -> Iterator[tuple[Path, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        package = ".".join(("devwidget", *file.relative_to(PACKAGE).parent.parts))
        for name in imported(ast.parse(file.read_text(encoding="utf-8")), package):
            yield file, name


def test_every_folder_and_file_stands_in_the_table() -> None:
    found = {layer_of(file) for file in PACKAGE.rglob("*.py")}
    assert found <= set(MAY_IMPORT)


def test_layers_import_only_what_the_table_allows() -> None:
    wrong = []
    for file, name in imports():
        parts = name.split(".")
        if parts[0] != "devwidget":
            continue
        layer, target = layer_of(file), parts[1] if len(parts) > 1 else "__init__"
        target = target if target in EVERYTHING else "__init__"
        if target not in {layer, "__init__", "extras"} | MAY_IMPORT[layer]:
            wrong.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_only_the_screen_imports_widget_libraries() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file, name in imports()
        if layer_of(file) not in ONLY_IN.get(name.partition(".")[0], {layer_of(file)})
    ]
    assert wrong == []


def test_layers_of_plain_facts_never_import_torch() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file, name in imports()
        if name.partition(".")[0] == "torch" and layer_of(file) in WITHOUT_TORCH
    ]
    assert wrong == []


FRESH = f"""
import json, sys, torch
before = set(sys.modules)
import devwidget
public = devwidget.__all__
shown = [name for name in dir(devwidget) if name not in public and not name.startswith("__")]
found = set(public) <= set(dir(devwidget)) and not hasattr(devwidget, "no")
devwidget.trace
heavy = [name for name in {HEAVY!r} if name in sys.modules and name not in before]
found = found and all(hasattr(devwidget, name) for name in public)
print(json.dumps([heavy, torch.cuda.is_initialized(), shown, found]))
"""


def fresh(program: str, *arguments: str) -> str:
    """What a program prints in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.process
def test_import_and_first_use_load_no_widget_library_touch_no_cuda_and_show_the_public_names_alone() -> None:
    assert json.loads(fresh(FRESH)) == [[], False, [], True]


@pytest.mark.process
def test_a_record_has_its_words_where_only_its_class_was_imported() -> None:
    told = fresh("from devwidget.records.snapshot import Snapshot; print(Snapshot(()))")
    assert told.strip()
    assert "Snapshot(" not in told


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("torch", "ipywidgets", "anywidget", "cloudpickle", "pandas")))  # as if not installed
import devwidget
trace = devwidget.load(sys.argv[1])
devwidget.set_language("zh")
print(trace)
trace.to_html(sys.argv[2])
print(type(devwidget.open(sys.argv[1])) is devwidget.Trace)
"""


@pytest.mark.process
def test_a_saved_record_opens_where_nothing_else_is_installed(tmp_path: Path) -> None:
    record, page = str(tmp_path / "trace.json"), str(tmp_path / "trace.html")
    from devwidget import Trace

    Trace().save(record)
    told = fresh(WITHOUT, record, page)
    assert told.splitlines()[0].startswith("追踪")
    assert told.endswith("True\n")
    assert "<html" in Path(page).read_text(encoding="utf-8")
