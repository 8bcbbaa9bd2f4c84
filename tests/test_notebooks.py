"""The notebooks: each runs from top to bottom on a machine without a GPU, quietly, and is stored without outputs."""

import functools
import os
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


def outputs(notebook, kind):
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs if out.output_type == kind]


@functools.cache
def executed(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", store_widget_state=False)
    client.execute(cwd=str(path.parent), env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    return notebook


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_nothing_on_stderr(path):
    assert outputs(executed(path), "error") == []
    assert [out.text for out in outputs(executed(path), "stream") if out.name == "stderr"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count] == []
    assert "widgets" not in notebook.metadata


def test_every_kind_of_the_field_guide_is_named():
    guide = next(path for path in NOTEBOOKS if path.stem == "03-field-guide")
    text = "".join(out.text for out in outputs(executed(guide), "stream"))
    kinds = ["wrong-device", "unsupported-on-device", "unassigned-move", "invalid-device", "non-leaf-grad",
             "optimizer-misplaced", "parallel-misplaced", "state-dict-prefix"]  # fmt: skip
    assert [kind for kind in kinds if f"error[{kind}]" not in text] == []


def test_in_a_kernel_the_offer_follows_the_traceback_and_why_answers():
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
    assert [out.output_type for out in failed] == ["error", "stream"]
    assert failed[1].text == "devwidget: `%devwidget why` names the tensor and the line\n"
    assert "x = torch.ones(1, 2, device='cuda:0')" in why[0].text
