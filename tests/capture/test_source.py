import ast
import linecache
import pathlib
import runpy
import sys
import textwrap

import pytest
import torch

import devwidget
from devwidget.capture.faults import failed_call
from devwidget.capture.source_code import classes, expressions, source_files, statements
from devwidget.records.syntax import parsed, parsed_operation
from devwidget.rules.edits import calls
from devwidget.rules.edits.source_file import code_of

CODE = """
LIMIT = 3
class Net(Base):
    shared = make()

    def __init__(self, n):
        super().__init__()
        self.mask = build(
            n, "größe",
        )
        for i in range(n): self.last = i

    def forward(self, x):
        device = 'gpu'
        if x:
            y = x.to(device)
        return y
device = 'cpu'
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(CODE))
    return str(path)


def defined(path):
    """What a file defines."""
    names = {"Base": object, "make": int}
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), names)
    return names


def test_a_statement_is_taken_whole(file):
    assert statements.statement_text(file, 9) == 'self.mask = build(\n    n, "größe",\n)'


def test_a_compound_statement_is_only_its_header(file):
    assert statements.statement_text(file, 15) == "if x:"
    assert statements.statement_text(file, 16) == "y = x.to(device)"


def test_an_expression_is_cut_out_by_bytes(file):
    assert statements.segment(file, (9, 9, 15, 24)) == '"größe"'


def test_the_nearest_assignment_in_the_same_function_counts(file):
    assert statements.assignment(file, "device", 16).line == 14
    assert statements.assignment(file, "LIMIT", 16).line == 2
    assert statements.assignment(file, "unknown", 16) is None


def test_an_attribute_is_found_in_the_class(file):
    net = defined(file)["Net"]
    found = classes.attribute_assignment(net, "mask")
    assert (found.line, found.function) == (8, "__init__")
    assert classes.attribute_assignment(net, "shared").line == 4
    assert classes.attribute_assignment(net, "nothing") is None


def test_source_that_is_not_at_hand_is_no_error(tmp_path):
    assert statements.statement_text("<nowhere>", 3) == ""
    broken = tmp_path / "cell.py"
    broken.write_text("%time model(x)\n")
    assert statements.statement_text(str(broken), 1) == "%time model(x)"


CHAIN = "model" + ".to(x).relu()" * 250
NESTED = "+".join(["x"] * 600)


@pytest.fixture
def long_file(tmp_path):
    """A file with a chain of 500 calls, a sum of 600, 900 `elif`s and ordinary lines after them."""
    branches = "".join(f"    elif x == {n}:\n        y = {n}\n" for n in range(900))
    head = f"def step(model, x):\n    z = {CHAIN}\n    s = {NESTED}\n    if x:\n        y = 0\n"
    code = f"{head}{branches}    last = z\n    return last\n"
    path = tmp_path / "long.py"
    path.write_text(code)
    return str(path)


def test_long_chains_sums_and_branches_are_no_recursion_error(long_file):
    assert statements.statement_text(long_file, 2) == f"z = {CHAIN}"
    assert statements.assignment(long_file, "z", 1800).line == 2
    assert statements.assigned_call(f"z = {CHAIN}") == ("", "")
    assert statements.unkept_move(long_file, "model", 1806) is None
    assert statements.first_parameter(long_file, 1806) == "model"


def test_a_parser_that_another_thread_has_disturbed_is_asked_again(monkeypatch):
    def disturbed(text, parse=ast.parse):
        calls.append(text)
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=48, after=44)")
        return parse(text)

    calls = []
    monkeypatch.setattr(ast, "parse", disturbed)
    assert len(parsed("x = 1").body) == 1
    assert len(calls) == 3


@pytest.mark.parametrize(
    "expression", [CHAIN, NESTED, "(" * 90 + "x" + ",)" * 90, "f(" * 190 + ")" * 190, "-" * 900 + "x", "\x00", "("]
)
def test_an_expression_nested_too_deeply_has_no_repairs_and_no_values(expression):
    frame = sys._getframe()
    assert parsed_operation(expression) is None
    assert failed_call.written_names(expression, (), {}) == {}
    assert list(expressions.Scope(frame).leaves(ast.Constant(1))) == []
    assert calls.moved_name(expression) == ""
    assert not calls.hands_on(f"y = {expression}")
    assert code_of("deep.py", (f"y = {expression}\n",)) is None


def test_a_chain_of_500_calls_runs_recorded_and_explained(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"import torch\ndef run(x):\n    y = x{'.add(1).mul(1)' * 250}\n    return y @ torch.ones(3)\n")
    space = runpy.run_path(str(path))
    with devwidget.record() as recording:
        space["run"](torch.ones(3))
    assert recording.trace.error == ""
    with pytest.raises(RuntimeError) as caught:
        space["run"](torch.ones(2))
    assert devwidget.explain(caught.value).site.line == 4


def test_a_file_is_kept_while_it_is_as_it_was(file):
    first = source_files.read_file(file)
    assert source_files.read_file(file) is first
    pathlib.Path(file).write_text("changed = 1\n")
    linecache.checkcache(file)
    assert statements.statement_text(file, 1) == "changed = 1"


def test_what_is_kept_of_files_is_bounded(monkeypatch):
    monkeypatch.setattr(source_files, "MOST_FILES", 5)
    before = len(source_files._known)
    for number in range(20):
        name = f"<ipython-input-{number}-x>"
        monkeypatch.setitem(linecache.cache, name, (9, None, [f"value_{number} = 1\n"], name))
        assert statements.assignment(name, f"value_{number}", 9).line == 1
    assert len(source_files._known) <= max(5, before)


def test_a_file_too_large_to_be_parsed_gives_its_lines(tmp_path):
    path = tmp_path / "generated.py"
    path.write_text("value = [\n    1]\n" * 70_000)
    assert statements.statement_text(str(path), 120_000) == "1]"
    assert statements.assignment(str(path), "value", 9) is None


def test_moves_whose_result_is_lost_are_found_in_their_own_function(tmp_path):
    path = tmp_path / "moves.py"
    path.write_text(
        "x.cuda\nx.cpu\ndef f(x):\n    x.to(1)\n    def g(x):\n        x.cuda()\n    return x\nx.cpu()\nx = 1\ny(x)\n"
    )
    assert statements.unkept_move(str(path), "x", 7).line == 4
    assert statements.unkept_move(str(path), "x", 8).line == 2
    assert statements.unkept_move(str(path), "x", 10) is None
    assert statements.discarded_move(str(path), 6).text == "x.cuda()"


def test_a_class_inside_a_function_keeps_its_lines_and_its_texts(tmp_path):
    path = tmp_path / "inner.py"
    inside = '        text = """\nflush left\n"""\n        def go(self):\n            self.a = 1\n'
    path.write_text(f"def f():\n    class Net:\n{inside}    return Net\n")
    assert classes.attribute_assignment(defined(str(path))["f"](), "a").line == 7


def test_of_two_classes_of_one_name_the_one_at_the_line_is_read(tmp_path):
    path = tmp_path / "two.py"
    text = "class Net:\n    def __init__(self):\n        self.a = 1\n"
    path.write_text(f"{text}first = Net\n{text}")
    names = defined(str(path))
    assert classes.attribute_assignment(names["first"], "a").line == 3
    assert classes.attribute_assignment(names["Net"], "a").line == 7
