import linecache

import pytest

from devwidget.records.finding import Edit, Fix
from devwidget.rules.repairs.refusals import refused
from tests.rules.builders import CPU, fault, operand


def why_not(source, line, text, found=None, file="train.py", insert=False):
    """The refusal of an edit of one line, or above it, in a program."""
    rows = source.splitlines()
    linecache.cache[file] = (len(source), None, [f"{row}\n" for row in rows], file)
    try:
        edit = Edit(file, line, line - 1 if insert else line, text, "" if insert else rows[line - 1])
        return refused(Fix("mend it", text, edits=(edit,)), found)
    finally:
        del linecache.cache[file]


def test_an_edit_that_changes_nothing_is_refused():
    assert why_not("x = f( 1 )\n", 1, "x = f(1)") == "it changes nothing"
    assert why_not("x = f(1)\n", 1, "x = f(1).to(2)") == ""


def test_a_name_that_gets_its_value_further_down_or_in_the_line_itself_is_refused():
    source = "x, y = made(), made()\na, b = mix(x, y)\nprint([a for a in b])\n"
    assert why_not(source, 1, "x, y = made(), made(device=a.device)") == "`a` has no value there yet"
    assert why_not(source, 1, "x, y = made(), made(device=x.device)") == "`x` has no value there yet"
    assert why_not(source, 2, "a, b = mix(x, y.to(x.device))") == ""


def test_a_move_above_the_loop_that_binds_the_name_is_refused_and_below_it_is_not():
    source = "for x in loader():\n    use(x)\n"
    assert why_not(source, 1, "x = x.to(d)", insert=True) == "`x` has no value there yet"
    assert why_not(source, 2, "    x = x.to(d)", insert=True) == ""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("lambda a: a", "a function"), ("np.array([1])", "a numpy array"), ("3.5", "no tensor"), ("loss.item()", "no tensor"),
        ("[1, 2]", "a container"), ("Batch(1)", "a `Batch`, which has no `to`"),
    ],
)  # fmt: skip
def test_what_has_no_device_is_asked_for_none(value, kind):
    source = f"class Batch:\n    pass\nthing = {value}\ny = use(thing)\n"
    assert why_not(source, 4, "y = use(thing.to('cuda:0'))") == f"`thing` is {kind}"
    assert why_not(source, 4, "y = use(4, device=thing.device)") == f"`thing` is {kind}"


def test_an_object_with_a_move_of_its_own_is_moved():
    source = "class Batch:\n    def to(self, device):\n        return self\nthing = Batch(1)\ny = use(thing)\n"
    assert why_not(source, 5, "y = use(thing.to('cuda:0'))") == ""


def test_a_copy_of_a_parameter_is_no_parameter():
    source = "self.a = nn.Parameter(torch.ones(2))\n"
    assert "parameter" in why_not(source, 1, "self.a = nn.Parameter(torch.ones(2)).to('cuda:0')")
    assert why_not(source, 1, "self.a = nn.Parameter(torch.ones(2).to('cuda:0'))") == ""


def test_a_device_is_not_read_from_the_tensor_in_the_wrong_place():
    found = fault(operand("x"), operand("h", CPU, stray=True))
    assert why_not("def f(x, h):\n    y = x + h\n", 2, "    y = x + h.to(h.device)", found) == "`h` is not where it must be"
    assert why_not("def f(x, h):\n    y = x + h\n", 2, "    y = x + h.to(x.device)", found) == ""


def test_a_key_or_an_index_of_this_run_is_not_written_down():
    source = "def step(x, key):\n    use(x, states[key])\n    use(batch)\n"
    assert why_not(source, 2, "    states['a'] = states['a'].to(x.device)", insert=True) == "the next run has other keys"
    assert why_not(source, 3, "    losses[0] = losses[0].to(x.device)", insert=True) == "the next run has other keys"
    assert why_not(source, 3, "    batch['mask'] = batch['mask'].to(x.device)", insert=True) == ""


def test_a_key_that_the_author_has_written_is_one_of_every_run():
    source = "def step(x, key):\n    use(states[key])\n    use(x)\n"
    edit = "    states['a'] = states['a'].to('cuda:0')"
    assert why_not(source, 3, edit, insert=True) == "the next run has other keys"
    assert why_not(f"{source}states = {{'a': 1}}\n", 3, edit, insert=True) == ""


def test_what_runs_in_the_workers_of_a_loader_is_given_no_device():
    source = "class Data(Dataset):\n    def __getitem__(self, i):\n        return torch.tensor(i)\n"
    assert why_not(source, 3, "        return torch.tensor(i, device='cuda')") == "workers of a DataLoader use no GPU"
    own = source.replace("Dataset", "Table")
    assert why_not(own, 3, "        return torch.tensor(i, device='cuda')") == ""


def test_a_file_that_a_library_wrote_into_the_temporary_folder_is_not_edited(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    file = str(tmp_path / "propagate_x1.py")
    assert why_not("y = x\n", 1, "y = x.to(d)", file=file) == "it edits a file that a library wrote"
    monkeypatch.syspath_prepend(str(tmp_path))
    assert why_not("y = x\n", 1, "y = x.to(d)", file=file) == ""
