"""How long a panel takes to open: time in the kernel, bytes sent, and time to the first painted row after the kernel's reply.

    python benchmarks/panel_opening.py [--runs 3]

Opens panels over made-up snapshots of 160, 10,000 and 100,000 modules in a real JupyterLab, medians of the runs.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.browser.chromium import launched
from tests.browser.lab import Lab

SIZES = (160, 10_000, 100_000)
SETUP = """
import time
from devwidget.panel.actions import PanelActions, TraceRequest
from devwidget.panel.panel import DeviceWidget
from tests.browser.esm import large
from tests.views.builders import split_model
import dataclasses
models = {n: dataclasses.replace(large(n), memory=split_model().memory) for n in %s}
DeviceWidget(PanelActions(lambda: models[160], None, tuple, tuple)).close()  # imports and the shared plotly code
def measured(n):
    global took, sent
    began = time.perf_counter()
    panel = DeviceWidget(PanelActions(lambda: models[n], None, tuple, tuple))
    took = time.perf_counter() - began
    sent = len(panel.view.table["packed"])
    return panel
""" % (SIZES,)  # noqa: UP031  the text is full of braces
PAINTED = """async ([cell, path]) => {
  const app = window.jupyterapp;
  const notebook = app.shell.currentWidget.content;
  notebook.activeCellIndex = cell;
  let painted = 0;
  const look = () => {
    if (notebook.widgets[cell].node.querySelector('.dw-body [role=row]')) painted = performance.now();
    else requestAnimationFrame(look);
  };
  const began = performance.now();
  look();
  await app.commands.execute('notebook:run-cell');
  const replied = performance.now();
  while (!painted) await new Promise((done) => setTimeout(done, 5));
  return [painted - began, painted - replied];
}"""


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder, launched() as browser, Lab(pathlib.Path(folder)) as lab:
        lab.write("bench.ipynb", [SETUP, *[f"measured({size})" for size in SIZES]])
        session = lab.open(browser, "bench.ipynb")
        session.run(0)
        print(f"{'modules':>8}  {'kernel ms':>9}  {'to first row ms':>15}  {'after reply ms':>14}  {'table kB':>10}")
        for cell, size in enumerate(SIZES, start=1):
            painted, after, took = [], [], []
            for _ in range(runs):
                session.page.evaluate(
                    "(cell) => window.jupyterapp.shell.currentWidget.content.model.cells.get(cell).clearExecution()", cell
                )
                whole, rest = session.page.evaluate(PAINTED, [cell, ""])
                painted.append(whole)
                after.append(max(0.0, rest))
                took.append(float(session.python("took")) * 1000)
            sent = int(session.python("sent")) / 1000
            numbers = [statistics.median(values) for values in (took, painted, after)]
            print(f"{size:8,}  {numbers[0]:9.0f}  {numbers[1]:15.0f}  {numbers[2]:14.0f}  {sent:10.1f}")
        session.close()


if __name__ == "__main__":
    main()
