"""The magics, in a shell without a notebook."""

import contextlib
import gc
import io
import linecache
import sys

import pytest
import torch
from IPython.core.error import UsageError

from devwidget import api, fix_writer, magics
from devwidget import gpus as simulator
from devwidget.records.finding import Edit
from tests.cells import ipython


@pytest.fixture
def shell():
    with ipython() as shell:
        magics.load_ipython_extension(shell)
        yield shell
        magics.unload_ipython_extension(shell)
        active = simulator.active()
        if active is not None:
            active.stop()


def printed(act):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        act()
    return out.getvalue()


def test_loading_twice_prints_nothing_and_unloading_takes_everything_off(shell):
    assert printed(lambda: magics.load_ipython_extension(shell)) == ""
    magics.unload_ipython_extension(shell)
    assert shell.find_line_magic("devwidget") is None
    assert shell.find_cell_magic("devtrace") is None


def test_without_arguments_it_prints_its_usage(shell):
    assert printed(lambda: shell.run_line_magic("devwidget", "")).startswith("%devwidget MODEL [BATCH]")


def test_simulate_starts_tells_and_stops(shell):
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate 3 1GiB")) == "virtual GPUs: 3\n"
    assert simulator.active().memory_bytes == (2**30,) * 3
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate status")) == "virtual GPUs: 3\n"
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate off")) == "virtual GPUs: off\n"
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate off")) == "virtual GPUs: off\n"


def test_a_model_opens_a_panel(shell):
    shell.run_cell("from torch import nn\nnet = nn.Linear(2, 3)")
    panel = shell.run_line_magic("devwidget", "net batch.float()")
    assert panel.snapshot.modules[0].class_name == "Linear"
    assert panel.view.inputs["batch"] == "batch.float()"
    panel.close()


def test_devtrace_gives_the_result_and_then_the_trace(shell):
    shell.run_cell("import torch\nfrom torch import nn\nnet = nn.Linear(2, 3)")
    results = []
    text = printed(lambda: results.append(shell.run_cell_magic("devtrace", "net", "x = torch.ones(1, 2)\nnet(x).shape\n")))
    assert tuple(results[0]) == (1, 3)
    assert shell.user_ns["x"].shape == (1, 2)
    assert text.startswith("Trace: ")


def test_devtrace_lets_an_exception_go_its_way_and_still_tells(shell):
    out = io.StringIO()
    with pytest.raises(ZeroDivisionError), contextlib.redirect_stdout(out):
        shell.run_cell_magic("devtrace", "", "1 / 0\n")
    assert "ended with ZeroDivisionError" in out.getvalue()


def test_a_semicolon_silences_the_result(shell):
    results = []
    printed(lambda: results.append(shell.run_cell_magic("devtrace", "", "3 + 4;\n")))
    assert results == [None]


BROKEN = "import torch\nnet = torch.nn.Linear(2, 3).to('cuda:0')\nx = torch.ones(1, 2)\nnet(x)"


REST = "`%devwidget why` shows the whole answer"


def test_a_device_exception_brings_its_finding_with_one_fix_and_why_has_all(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    text = printed(lambda: shell.run_cell(BROKEN))
    _, _, answer = text.partition("wrapper_CUDA_addmm)\n")
    lines = answer.splitlines()
    assert lines[0] == "error[wrong-device] `linear` got tensors on cpu and cuda:0"
    assert [line.strip() for line in lines if "+ " in line] == ["+ x = torch.ones(1, 2, device='cuda:0')"]
    assert (lines[-1], text.count(REST)) == (REST, 1)
    why = printed(lambda: shell.run_cell("%devwidget why"))
    assert "error[wrong-device]" in why
    assert "x = x.to(net.weight.device)" in why
    assert REST not in why


def test_an_exception_that_a_cell_within_a_cell_raised_is_answered_once(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    shell.user_ns |= {"shell": shell, "BROKEN": BROKEN}
    text = printed(lambda: shell.run_cell("shell.run_cell(BROKEN).raise_error()"))
    assert text.count("Expected all tensors to be on the same device") == 2
    assert text.count(REST) == 1


def test_errors_off_leaves_the_traceback_alone_until_they_are_on_again(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    assert printed(lambda: shell.run_line_magic("devwidget", "errors off")) == "errors: off\n"
    assert REST not in printed(lambda: shell.run_cell(BROKEN))
    assert printed(lambda: shell.run_line_magic("devwidget", "errors on")) == "errors: on\n"
    assert REST in printed(lambda: shell.run_cell(BROKEN))


def test_an_answer_that_fails_leaves_the_traceback_alone(shell, monkeypatch):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    monkeypatch.setattr(api, "explain", lambda error: 1 / 0)
    text = printed(lambda: shell.run_cell(BROKEN))
    assert "Expected all tensors to be on the same device" in text
    assert "ZeroDivisionError" not in text


def test_an_answer_keeps_neither_frames_nor_tensors_alive(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    shell.kernel = object()
    large = BROKEN.replace("ones(1, 2)", "ones(2**22, 2)").replace("net(x)", "import weakref\nfreed = weakref.ref(x)\nnet(x)")
    text = printed(lambda: shell.run_cell(large, cell_id="a"))
    assert "error[wrong-device]" in text
    del shell.kernel
    printed(lambda: shell.run_cell("del x\n1 / 0"))
    gc.collect()
    assert shell.user_ns["freed"]() is None


def test_a_tensor_made_in_an_earlier_cell_has_its_line(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    shell.run_cell("import torch\nnet = torch.nn.Linear(2, 3).to('cuda:0')\nx = torch.ones(1, 2)", store_history=True)
    printed(lambda: shell.run_cell("net(x)", store_history=True))
    why = printed(lambda: shell.run_cell("%devwidget why"))
    assert "x = torch.ones(1, 2)" in why
    assert "device='cuda:0'" in why


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        ("import torch\ntorch.ones(1, device='cuda:7')", "error[invalid-device]"),
        ("raise RuntimeError('Attempting to unscale FP16 gradients')", "GradScaler unscales only float32 gradients"),
        ("raise RuntimeError('Expected all tensors to be on the same device')", ""),
        ("import torch\nx = torch.ones(2)\nraise RuntimeError(f'no kernel of mine for this device {x.sum()}')", ""),
    ],
)
def test_an_exception_is_followed_by_what_is_known_of_it_or_by_nothing(shell, cell, answer):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    text = printed(lambda: shell.run_cell(cell))
    assert (REST in text) is bool(answer)
    assert answer in text


def test_fix_explains_an_exception_that_came_before_the_extension(shell, monkeypatch):
    magics.unload_ipython_extension(shell)
    shell.run_cell("import devwidget\ngpus = devwidget.simulate(1).start()")
    printed(lambda: shell.run_cell(BROKEN))
    magics.load_ipython_extension(shell)
    monkeypatch.setattr(fix_writer, "_last", None)
    assert "x = torch.ones(1, 2, device='cuda:0')" in printed(lambda: shell.run_cell("%devwidget fix"))


def test_fix_before_anything_says_what_to_type(shell, monkeypatch):
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    monkeypatch.setattr(fix_writer, "_last", None)
    assert "devwidget.trace(model, batch)" in printed(lambda: shell.run_line_magic("devwidget", "fix"))


def test_other_exceptions_and_good_cells_add_nothing(shell):
    for cell in ("raise OSError('No space left on device')", "x = ", "3 + 4"):
        assert REST not in printed(lambda cell=cell: shell.run_cell(cell))


def test_handlers_of_the_user_stay_and_unloading_ends_the_answers(shell):
    handled = []
    shell.set_custom_exc((RuntimeError,), lambda self, kind, value, trace, tb_offset=None: handled.append(kind))
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    assert printed(lambda: shell.run_cell(BROKEN)).splitlines()[-1] == REST
    assert handled == [RuntimeError]
    magics.unload_ipython_extension(shell)
    assert REST not in printed(lambda: shell.run_cell(BROKEN))
    shell.set_custom_exc((), None)


def test_why_without_an_exception_is_a_short_error(shell, monkeypatch):
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    with pytest.raises(UsageError, match="no exception"):
        shell.run_line_magic("devwidget", "why")


MADE = """\
import torch
def mask_of(size):
    mask = torch.ones(size, size)
    return mask.tril()
kept = [mask_of(2)]
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.linear(x) * kept[0]
net = Net().cuda()
x = torch.ones(2, 2, device="cuda")"""


def test_with_births_on_a_tensor_of_an_earlier_cell_has_the_line_in_a_function_that_has_returned(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    printed(lambda: shell.run_line_magic("devwidget", "births off"))
    assert printed(lambda: shell.run_line_magic("devwidget", "births")) == "births: off\n"
    text = printed(lambda: shell.run_line_magic("devwidget", "births on"))
    assert text.startswith("each call that creates a tensor takes ")
    assert text.endswith("\nbirths: on\n")
    shell.run_cell(MADE, store_history=True)
    trace = api.trace(shell.user_ns["net"], shell.user_ns["x"])
    assert trace.findings[0].birth.text == "mask = torch.ones(size, size)"
    printed(lambda: shell.run_cell("net(x)", store_history=True))
    assert "mask = torch.ones(size, size)" in printed(lambda: shell.run_cell("%devwidget why"))
    assert printed(lambda: shell.run_line_magic("devwidget", "births off")) == "births: off\n"


def test_by_itself_a_tensor_of_an_earlier_cell_has_the_line_in_a_function_that_has_returned(shell):
    printed(lambda: shell.run_line_magic("devwidget", "simulate 1 1GiB"))
    assert (
        printed(lambda: shell.run_line_magic("devwidget", "births")) == "births: on for the first 10,000 calls of each cell\n"
    )
    shell.run_cell(MADE, store_history=True)
    printed(lambda: shell.run_cell("net(x)", store_history=True))
    assert "mask = torch.ones(size, size)" in printed(lambda: shell.run_cell("%devwidget why"))


MODES = "torch.overrides._get_current_function_mode_stack()"


def modes_in(shell, cell):
    """How many function modes there are at the end of a cell."""
    shell.run_cell(f"import torch\n{cell}\nat_end = len({MODES})")
    return shell.user_ns["at_end"]


def test_births_by_themselves_leave_nothing_behind_between_cells(shell):
    before = torch.overrides.has_torch_function, torch.compile, torch.utils.weakref
    assert modes_in(shell, "x = torch.ones(2)") == 1
    assert torch.overrides._get_current_function_mode_stack() == []
    assert (torch.overrides.has_torch_function, torch.compile, torch.utils.weakref) == before


def test_births_that_are_off_stay_off_in_later_cells(shell):
    printed(lambda: shell.run_cell("%devwidget births off"))
    assert modes_in(shell, "x = torch.ones(2)") == 0


def test_after_the_first_compiled_function_no_cell_is_watched_by_itself(shell):
    compiled = "f = torch.compile(lambda x: x * 2, backend='eager')\nf(torch.ones(2))"
    assert modes_in(shell, compiled) == 0
    assert modes_in(shell, "x = torch.ones(2)") == 0
    assert printed(lambda: shell.run_line_magic("devwidget", "births")).startswith(
        "births: off, because a function is compiled"
    )
    printed(lambda: shell.run_cell("%devwidget births on"))
    assert modes_in(shell, "f(torch.ones(2))") == 1


def test_births_leave_nothing_behind_between_cells_and_when_they_end(shell):
    before = torch.overrides.has_torch_function
    printed(lambda: shell.run_cell("%devwidget births on"))
    assert torch.overrides._get_current_function_mode_stack() == []
    shell.run_cell(f"import torch\ninside = len({MODES})\n1 / 0")
    assert shell.user_ns["inside"] == 1
    assert torch.overrides._get_current_function_mode_stack() == []
    magics.unload_ipython_extension(shell)
    assert torch.overrides.has_torch_function is before
    shell.run_cell(f"inside = len({MODES})")
    assert shell.user_ns["inside"] == 0


def test_virtual_gpus_that_a_traced_cell_starts_are_in_its_trace_and_run_on_after_it(shell):
    cell = "%%devtrace\nimport torch\n%devwidget simulate 2\nnet = torch.nn.Linear(2, 3).cuda()\nnet(torch.ones(1, 2))"
    text = printed(lambda: shell.run_cell(cell))
    assert "error[wrong-device]" in text
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate status")) == "virtual GPUs: 2\n"
    assert printed(lambda: shell.run_line_magic("devwidget", "simulate off")) == "virtual GPUs: off\n"


def said(shell, magic, line, cell=None):
    """What a mistake is answered with."""
    with pytest.raises(UsageError) as caught:
        shell.run_line_magic(magic, line) if cell is None else shell.run_cell_magic(magic, line, cell)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nosuch", "`nosuch` is neither a variable nor a command -> %devwidget net"),
        ("simulat 2", "`simulat` is neither a variable nor a command; did you mean 'simulate'? -> %devwidget help"),
        ("nett", "`nett` is neither a variable nor a command; did you mean 'net'? -> %devwidget net"),
        ("net)", "`net)` is not an expression: unmatched ')' -> %devwidget net"),
        ("1/0", "`1/0` raised ZeroDivisionError: division by zero -> %devwidget help"),
        ("why not", "`why` has no option `not` -> %devwidget why"),
        ("fix aply", "`fix` has no option `aply` -> %devwidget fix | %devwidget fix apply"),
        ('simulate "2', 'cannot parse `simulate "2` -> %devwidget simulate 2 16GiB'),
        ("simulate 0", "cannot simulate 0 GPUs (`gpus` is a whole number from 1 to 128) -> %devwidget simulate 2 16GiB"),
    ],
)
def test_a_mistake_in_a_magic_is_one_line_with_a_line_that_works(shell, line, words):
    shell.run_cell("import torch\nnet = torch.nn.Linear(2, 3)")
    assert said(shell, "devwidget", line) == words
    assert simulator.active() is None


@pytest.mark.parametrize(("line", "cell"), [("nosuch", "1\n"), ("", "x =\n")])
def test_a_mistake_in_a_traced_cell_is_one_line_and_runs_nothing(shell, line, cell):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert "\n" not in said(shell, "devtrace", line, cell)
    assert out.getvalue() == ""


def test_help_names_a_line_that_works_in_this_notebook(shell):
    assert "in this notebook" not in printed(lambda: shell.run_line_magic("devwidget", ""))
    shell.run_cell("import torch\nold = torch.nn.Linear(2, 3)\nnet = torch.nn.Linear(2, 3)")
    for line in ("", "help"):
        shown = printed(lambda line=line: shell.run_line_magic("devwidget", line))
        assert shown.endswith("\nin this notebook: %devwidget net\n")


def test_the_question_mark_shows_every_command(shell):
    shown = printed(lambda: shell.run_cell("%devwidget?"))
    assert magics.usage_lines() in shown


def test_a_model_may_be_an_expression_with_blanks(shell):
    shell.run_cell("import torch")
    panel = shell.run_line_magic("devwidget", "torch.nn.Linear(2, 3)  torch.ones(1, 2)")
    assert panel.view.inputs["batch"] == "torch.ones(1, 2)"
    panel.close()


def test_a_traced_cell_bears_its_own_number(shell):
    shell.run_cell("1", store_history=True)
    text = printed(lambda: shell.run_cell("%%devtrace\n1 / 0", store_history=True))
    assert "where: outside the model, In[2]:2: 1 / 0" in text


def test_a_cell_that_a_debugger_has_written_to_disk_is_no_file(shell, tmp_path, monkeypatch):
    cell = tmp_path / "ipykernel_7" / "123.py"
    cell.parent.mkdir()
    cell.write_text("x = 1\n")
    monkeypatch.setattr(linecache, "cache", {})
    monkeypatch.setattr(api, "edits_to_apply", lambda: {str(cell): [Edit(str(cell), 1, 1, "x = 2", "x = 1")]})
    inputs = []
    monkeypatch.setattr(shell, "set_next_input", lambda text, replace: inputs.append(text))
    text = printed(lambda: shell.run_line_magic("devwidget", "fix apply"))
    assert inputs == ["x = 2\n"]
    assert text.endswith("with the fix: run it\n")
    assert "was written before" not in text
    assert "was written before" in printed(lambda: shell.run_line_magic("devwidget", "fix apply"))
    assert [each.name for each in cell.parent.iterdir()] == ["123.py"]


def test_no_file_is_written_if_one_of_them_cannot_be(shell, tmp_path, monkeypatch):
    mine, changed = tmp_path / "mine.py", tmp_path / "changed.py"
    mine.write_text("x = 1\n")
    changed.write_text("y = 2\n")
    edits = {str(path): [Edit(str(path), 1, 1, "z = 3", was)] for path, was in ((mine, "x = 1"), (changed, "y = 1"))}
    monkeypatch.setattr(api, "edits_to_apply", lambda: edits)
    assert "has changed" in said(shell, "devwidget", "fix apply")
    assert [path.read_text() for path in sorted(tmp_path.glob("m*"))] == ["x = 1\n"]
