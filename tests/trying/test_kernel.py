"""In a notebook's kernel, whose own threads are none that a trial could disturb."""

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"),
]

MODEL = """
import torch, devwidget, threading
from torch import nn
from IPython.display import display
devwidget.simulate(1).start()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        print("printed")
        display("displayed")
        shift = torch.zeros(4)
        return self.layer(x) + shift

model, batch = Net().to("cuda:0"), torch.ones(2, 4, device="cuda:0")
"""
TRACE = """
trace = devwidget.trace(model, batch)
fix = trace.findings[0].fixes[0]
print(trace.step_runs, fix.verified, fix.not_tried)
"""
THREAD = """
stop = threading.Event()
def train():
    while not stop.wait(0.001):
        sum(range(100))
thread = threading.Thread(target=train, name="trainer")
thread.start()
"""
PANEL = """
panel = devwidget.show(model, batch)
trace = panel.run_trace()
panel.try_fix(0, 0)
print(panel.findings[0].fixes[0].verified, panel.trace.step_runs)
stop.set()
thread.join()
"""


def shown(cell):
    """What a cell printed, then how often it displayed."""
    text = "".join(out.text for out in cell.outputs if out.output_type == "stream")
    return text.split("\n")[:-1], sum("'displayed'" in str(out.get("data")) for out in cell.outputs)


@pytest.fixture(scope="module")
def cells():
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(each) for each in (MODEL, TRACE, THREAD, TRACE, PANEL)]
    )
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    return notebook.cells


def test_a_fix_is_tried_beside_the_threads_of_the_kernel_and_shows_its_output_once(cells):
    assert shown(cells[1]) == (["printed", "2 True "], 1)


def test_a_thread_of_the_notebook_has_it_offered(cells):
    assert shown(cells[3]) == (["printed", "1 False another thread is running: `trainer`"], 1)


def test_the_panel_tries_it_when_it_is_asked(cells):
    assert shown(cells[4])[0] == ["printed", "True 3"]
