"""A file that was edited since it was last read is read anew by the next recording."""

import runpy

import devwidget

BEFORE = "import torch\nlosses = torch.ones(2).cuda()\nprint(float(losses.sum()))\n"


def first_site(file):
    with devwidget.simulate(gpus=1), devwidget.record() as recording:
        runpy.run_path(str(file))
    return recording.trace.moves[0].site


def test_a_program_that_was_edited_between_two_recordings_is_shown_as_it_is_now(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(BEFORE)
    assert first_site(file).text == "losses = torch.ones(2).cuda()"
    file.write_text(BEFORE.replace("losses", "all_losses").replace("import torch\n", "import torch\n\n"))
    assert (first_site(file).line, first_site(file).text) == (3, "all_losses = torch.ones(2).cuda()")
