"""Who imports whom, against the table of layers; and what `import devwidget` loads."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devwidget.extras import extras, find_home, load_all, offered

PACKAGE = Path(str(importlib.util.find_spec("devwidget").origin)).parent  # type: ignore[union-attr]


def words(text: str) -> set[str]:
    return set(text.split())


FOLDERS = words("records language capture memory gpus rules views report panel trying cli")
FILES = words(
    """
    api recording allowed_findings live_model post_mortem fix_writer apply_fix saved_files magics
    pytest_plugin pytest_explainer integrations
    """
)
EVERYTHING = FOLDERS | FILES

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
    "trying": EVERYTHING,  # the half of `trace` that tries fixes
    "saved_files": words("records"),  # the half of api that needs no torch
    "magics": words("api records language"),  # records for the exceptions that it prints
    # all but api for what works without torch, and gpus: a process that inherits virtual GPUs begins them
    "cli": words("api capture records views report language gpus"),
    "__main__": words("cli"),
    "pytest_plugin": words("api records language pytest_explainer gpus"),  # gpus as for cli
    "pytest_explainer": words("api records report language"),  # the half of the plugin that is loaded when it is asked
    "integrations": words("records"),
    "extras": words("records"),  # the registry
    "_version": words(""),
    **dict.fromkeys(words("__init__ api recording allowed_findings live_model post_mortem fix_writer apply_fix"), EVERYTHING),
}
"""Layer of the core -> the other layers that it may import; all may ask the registry of extras."""

INSIDE_AN_EXTRA = {
    "records": words("records"),
    "rules": words("records memory rules"),
    "views": words("records memory views"),
    "words": words("records views report language"),
    "page": words("records views report language"),
    "screen": words("records views report language panel"),
}
"""Beginning of a file's name, or of its folder's -> the layers of the core that it may import; all others may import any."""

WIDGET_LIBRARIES = words("ipywidgets anywidget traitlets plotly")
WITHOUT_TORCH = words("saved_files records language memory rules views report panel extras")
HEAVY = ("plotly", "pandas", "ipywidgets", "anywidget", "traitlets", "IPython")


def layer_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


EXTRAS = PACKAGE / "extras"
NAMES_OF_EXTRAS = {file.parent.name for file in EXTRAS.glob("*/extra.py")}


def extra_of(file: Path) -> str:
    """The extra that a file is of, "" for the core."""
    parts = file.relative_to(PACKAGE).parts
    return parts[1] if parts[0] == "extras" and parts[1] in NAMES_OF_EXTRAS else ""


def kind_of(file: Path) -> str:
    """What a file of an extra is by its name or that of its folder: `records`, `words`, ...; "" for others."""
    first = file.relative_to(EXTRAS).parts[1]
    return re.split(r"[_.]", first)[0] if re.split(r"[_.]", first)[0] in INSIDE_AN_EXTRA else ""


def target_of(name: str) -> tuple[str, str]:
    """The layer that an import reaches, and the extra."""
    parts = [*name.split("."), "", ""]
    return (parts[1] if parts[1] in EVERYTHING | {"extras"} else "__init__"), parts[2] if parts[2] in NAMES_OF_EXTRAS else ""


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


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def imports() -> tuple[tuple[Path, str], ...]:
    found = list[tuple[Path, str]]()
    for file, tree in trees().items():
        package = ".".join(("devwidget", *file.relative_to(PACKAGE).parent.parts))
        found += [(file, name) for name in imported(tree, package)]
    return tuple(found)


@functools.cache
def named() -> tuple[tuple[Path, str], ...]:
    """All imports of ours, for type checkers too."""
    found = list[tuple[Path, str]]()
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found += [(file, name) for name in imported(node, "") if name.startswith("devwidget")]
    return tuple(found)


def test_every_folder_and_file_stands_in_the_table() -> None:
    found = {layer_of(file) for file in PACKAGE.rglob("*.py")}
    assert found <= set(MAY_IMPORT)


def test_the_core_imports_no_extra() -> None:
    """Not in a function and not for types either; the registry looks modules up by name."""
    assert [f"{file} imports {name}" for file, name in named() if target_of(name)[1] and not extra_of(file)] == []


def test_an_extra_imports_no_other_but_those_that_it_names() -> None:
    wrong = []
    for file, name in named():
        own, other = extra_of(file), target_of(name)[1]
        if own and other not in {"", own, *extras()[own].after}:
            wrong.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_layers_import_only_what_the_table_allows() -> None:
    wrong = []
    for file, name in imports():
        if not name.startswith("devwidget") or extra_of(file):
            continue
        layer, (target, _) = layer_of(file), target_of(name)
        if target not in {layer, "__init__", "extras"} | MAY_IMPORT[layer]:
            wrong.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_files_of_extras_import_only_what_their_names_allow() -> None:
    wrong = []
    for file, name in imports():
        allowed = INSIDE_AN_EXTRA.get(kind_of(file)) if extra_of(file) else None
        if allowed is not None and name.startswith("devwidget") and target_of(name)[0] not in allowed | {"__init__", "extras"}:
            wrong.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def is_of_the_screen(file: Path) -> bool:
    return kind_of(file) == "screen" if extra_of(file) else layer_of(file) == "panel"


def test_only_the_screen_imports_widget_libraries() -> None:
    for_users = PACKAGE / "report" / "figures" / "as_plotly.py", "plotly.graph_objects"  # a figure that they ask for
    wrong = [(file, name) for file, name in imports() if name.partition(".")[0] in WIDGET_LIBRARIES]
    wrong.remove(for_users)
    assert [f"{file.relative_to(PACKAGE)} imports {name}" for file, name in wrong if not is_of_the_screen(file)] == []


def needs_no_torch(file: Path) -> bool:
    return bool(kind_of(file)) if extra_of(file) else layer_of(file) in WITHOUT_TORCH


def test_layers_of_plain_facts_never_import_torch() -> None:
    wrong = [(file, name) for file, name in imports() if name.partition(".")[0] == "torch"]
    assert [f"{file.relative_to(PACKAGE)} imports {name}" for file, name in wrong if needs_no_torch(file)] == []


def test_the_types_of_all_public_names_are_known() -> None:
    import devwidget

    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    lists = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert [ast.literal_eval(each) for each in lists] == [devwidget.__all__]
    known = {name.rpartition(".")[2] for node in tree.body for name in imported(node, "")}
    known |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(devwidget.__all__) <= known


def test_what_extras_offer_is_there() -> None:
    assert all(hasattr(find_home("names", name), name) for name in offered("names"))
    for slot in ("records", "formats", "magics", "recorder"):
        assert all(find_home(slot, key) for key in offered(slot))
    for slot in ("files", "folders", "words", "commands", "panel", "gpus"):
        assert load_all(slot)


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
