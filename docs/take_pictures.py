"""Takes the pictures in docs/pictures: the panels of the notebooks, run in a real JupyterLab; `make pictures`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT))  # for the rig of the tests

from tests.browser.chromium import launched  # noqa: E402
from tests.browser.lab import DARK, LIGHT, Lab, LabPage  # noqa: E402

WIDTH, SCALE = 1000, 1.5
MOST_HEIGHT = 720
"""Of a picture, in CSS pixels: what is below is more of the same."""
TABS = {"modules": "Modules", "trace": "Trace", "devices": "Devices", "memory": "Memory"}


def take(session: LabPage, panel: Any, name: str, *, dark: bool = False) -> None:
    """One picture, and its dark twin."""
    for theme, suffix in ((LIGHT, ""), (DARK, "-dark"))[: 1 + dark]:
        session.use_theme(theme)
        session.page.wait_for_timeout(700)  # figures are drawn anew
        panel.locator("xpath=..").evaluate("(node) => node.scrollIntoView({ block: 'start' })")
        box = panel.bounding_box()
        clip = {**box, "height": min(box["height"], MOST_HEIGHT)}
        session.page.screenshot(path=PICTURES / f"{name}{suffix}.png", clip=clip)
    session.use_theme(LIGHT)


def run(session: LabPage, path: Path, until: str, after: str = "") -> Any:
    """Run a notebook from behind one cell down to another, each named by words in it; the panel of the last one."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    begin, stop = (next((i for i, cell in enumerate(cells) if text in "".join(cell["source"])), 0) for text in (after, until))
    for number in range(begin + bool(after), stop + 1):
        if cells[number]["cell_type"] == "code":
            session.run(number)
    return session.page.locator(".jp-Cell").nth(stop).locator(".dw-panel")


def first_look(lab: Lab, browser: Any) -> None:
    """The finding after one click, then the model on two GPUs."""
    path = ROOT / "notebooks" / "01-first-look.ipynb"
    session = lab.open(browser, lab.copy(path), width=WIDTH, height=1200, device_scale_factor=SCALE)
    session.hide_sidebar()
    faulty = "panel = devwidget.show(model"
    panel = run(session, path, faulty)
    panel.get_by_role("button", name="Trace batch").click()
    panel.locator(".dw-finding").wait_for()
    take(session, panel, "findings", dark=True)
    panel = run(session, path, "fixed_panel = devwidget.show", after=faulty)
    for name, tab in TABS.items():
        panel.get_by_role("tab", name=tab).click()
        take(session, panel, name)
    session.close()


def dataparallel(lab: Lab, browser: Any) -> None:
    """DataParallel as it ran, with the loss outside."""
    path = ROOT / "notebooks" / "02-dataparallel.ipynb"
    session = lab.open(browser, lab.copy(path), width=WIDTH, height=1200, device_scale_factor=SCALE)
    session.hide_sidebar()
    panel = run(session, path, "panel = devwidget.show(parallel")
    panel.get_by_role("tab", name="Devices").click()
    take(session, panel, "dataparallel")
    session.close()


def main() -> None:
    """Take them all."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser, Lab(Path(folder)) as lab:
        first_look(lab, browser)
        dataparallel(lab, browser)
    for picture in sorted(PICTURES.glob("*.png")):
        print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
