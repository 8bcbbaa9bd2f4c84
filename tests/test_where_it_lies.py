"""The package knows its own files by their place, whatever the folders above are called and however they are reached."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import devwidget

PROGRAM = """
import torch, devwidget
class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.GRU(2, 3, batch_first=True)
    def forward(self, picture):
        hidden = torch.zeros(1, len(picture), 3)
        return self.rows(picture, hidden)[0]
with devwidget.simulate(gpus=1):
    model = Reader().to("cuda:0")
    finding, = devwidget.trace(model, torch.rand(4, 2, 2, device="cuda:0"), verify=False).findings
    print(finding.birth.text)
"""


@pytest.mark.process
@pytest.mark.parametrize("folder", ["devwidget", "größe mit Leerzeichen"])
def test_lines_of_ours_are_told_from_the_users_behind_a_link(tmp_path: pathlib.Path, folder: str) -> None:
    place, program = tmp_path / folder, tmp_path / folder / "devwidget_program.py"
    place.mkdir()
    (place / "devwidget").symlink_to(pathlib.Path(devwidget.__file__).parent, target_is_directory=True)
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "hidden = torch.zeros(1, len(picture), 3)\n", done.stderr
