"""The notebooks: each runs from top to bottom on a machine without a GPU, quietly, and shows what is stored with it.

Those that run whole in a real JupyterLab say so there, by the functions of this file: `browser/test_other_notebooks.py`.
"""

import copy
import difflib
import importlib.util
import pathlib
import re

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from devwidget.capture import torch_internals
from tests.browser.chromium import find_chromium

ROOT = pathlib.Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("refresh", ROOT / "notebooks" / "refresh.py")
refresh = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(refresh)

NOTEBOOKS = refresh.paths()
MOST_BYTES = 500_000
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
RUN_IN_LAB = ("05-will-it-fit",)
"""A run takes 12 to 40 s, and one is enough."""
each_run_here = pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem not in RUN_IN_LAB or not find_chromium()], ids=lambda path: path.stem
)


def outputs(notebook, kind):
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs if out.output_type == kind]


def check_quiet(run):
    assert outputs(run, "error") == []
    assert [out.text for out in outputs(run, "stream") if out.name == "stderr"] == []


def check_as_stored(path, run):
    """Numbers are those of the pinned torch."""
    if is_pinned():
        stored, new = refresh.lines_shown(nbformat.read(path, as_version=4)), refresh.lines_shown(run)
        changes = "\n".join(difflib.unified_diff(stored, new, "stored", "now", n=0, lineterm=""))
        assert not changes, f"run make notebooks, and read what has changed:\n{changes}"


def is_pinned():
    return torch.__version__.startswith(torch_internals.TESTED)


@pytest.mark.parametrize("path", refresh.translations(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_translated_notebook_runs_the_same_code_but_for_its_language(path):
    """So it needs no run of its own."""
    speak = f'\ndevwidget.set_language("{path.parent.name}")\n'
    english, other = (nbformat.read(each, as_version=4).cells for each in (path.parents[1] / path.name, path))
    assert [cell.cell_type for cell in other] == [cell.cell_type for cell in english]
    pairs = [(one.source, two.source) for one, two in zip(english, other, strict=True) if one.cell_type == "code"]
    assert [two.replace(speak, "") for _, two in pairs] == [one for one, _ in pairs]
    assert sum(speak in two for _, two in pairs) == 1
    prose = [(one.source, two.source) for one, two in zip(english, other, strict=True) if one.cell_type == "markdown"]
    assert all(one.count("#") <= two.count("#") and one != two for one, two in prose)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("virtual_gpus")
@each_run_here
def test_a_notebook_runs_and_says_nothing_on_stderr(path):
    """And shows what is stored with it."""
    run = refresh.executed(path)
    check_quiet(run)
    check_as_stored(path, run)


@each_notebook
def test_a_notebook_is_stored_with_its_panels_and_without_widgets_or_anything_of_the_machine(path):
    text = path.read_text(encoding="utf-8")
    assert "dw-saved" in text
    assert len(text.encode()) < MOST_BYTES
    for word in ("widget-view", '"widgets"', str(ROOT), str(pathlib.Path.home()) + "/", "site-packages"):
        assert word not in text


@pytest.mark.parametrize("path", [*NOTEBOOKS, *refresh.translations()], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_size_in_the_texts_of_a_notebook_stands_in_its_cells_or_in_what_they_show(path):
    cells = nbformat.read(path, as_version=4).cells
    texts = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    shown = "".join(cell.source + str(cell.outputs) for cell in cells if cell.cell_type == "code")
    sizes = set(re.findall(r"(?<![\w.])(\d[\d,.]*) ?(ms|s|%|KiB|MiB|GiB)(?!\w)", texts))
    assert [size for size in sizes if not re.search(rf"(?<![\d.]){size[0]}(\.0+)? ?{size[1]}", shown)] == []


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("no hops · 823 ms · 2", "no hops · 1.2 s · 2", True),
        ("a  12 ms\nb   9 ms", "a  9 ms\nb  9 ms", True),
        ("peak 85.8 MiB", "peak 85.9 MiB", False),
        ("no findings", "1 error", False),
        ("✓ nothing found, 13 checks", "✓ nothing found, 14 checks", False),
    ],
)
def test_times_are_no_change_and_everything_else_is(before, after, is_same):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text=before)]
    other = copy.deepcopy(notebook)
    other.cells[0].outputs[0].text = after
    assert (refresh.shown(notebook) == refresh.shown(other)) is is_same


def test_the_field_guide_shows_every_kind():
    guide = next(path for path in NOTEBOOKS if path.stem == "03-field-guide")
    text = "".join(out.text for out in outputs(nbformat.read(guide, as_version=4), "stream"))
    kinds = ["wrong-device", "unsupported-on-device", "unassigned-move", "invalid-device", "non-leaf-grad",
             "optimizer-misplaced", "parallel-misplaced", "state-dict-prefix"]  # fmt: skip
    assert [kind for kind in kinds if f"error[{kind}]" not in text] == []


@pytest.mark.slow
@pytest.mark.process
def test_in_a_kernel_a_card_follows_the_traceback_and_why_answers():
    cells = [
        "%load_ext devwidget\n%devwidget simulate 1 1GiB",
        "import torch\nnet = torch.nn.Linear(2, 3).to('cuda:0')",
        "x = torch.ones(1, 2)",
        "net(x)",
        "%devwidget why",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True, store_widget_state=False).execute()
    failed, why = notebook.cells[3].outputs, notebook.cells[4].outputs
    assert [out.output_type for out in failed] == ["error", "display_data", "display_data"]
    assert failed[1].data["text/plain"].startswith("error[wrong-device] `linear` got tensors on cpu and cuda:0")
    assert "application/vnd.jupyter.widget-view+json" in failed[2].data
    assert "x = torch.ones(1, 2, device='cuda:0')" in why[0].text
