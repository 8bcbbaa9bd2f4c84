import textwrap

import pytest

from devwidget.capture import source

CODE = '''
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
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(CODE))
    return str(path)


def test_a_statement_is_taken_whole(file):
    assert source.statement_text(file, 9) == 'self.mask = build(\n    n, "größe",\n)'


def test_a_compound_statement_is_only_its_header(file):
    assert source.statement_text(file, 15) == "if x:"
    assert source.statement_text(file, 16) == "y = x.to(device)"


def test_an_expression_is_cut_out_by_bytes(file):
    assert source.segment(file, (9, 9, 15, 24)) == '"größe"'


def test_the_nearest_assignment_in_the_same_function_counts(file):
    assert source.assignment(file, "device", 16).line == 14
    assert source.assignment(file, "LIMIT", 16).line == 2
    assert source.assignment(file, "unknown", 16) is None


def test_an_attribute_is_found_in_the_class(file):
    found = source.attribute_assignment(file, "Net", "mask")
    assert (found.line, found.function) == (8, "__init__")
    assert source.attribute_assignment(file, "Net", "shared").line == 4
    assert source.attribute_assignment(file, "Net", "nothing") is None


def test_source_that_is_not_at_hand_is_no_error(tmp_path):
    assert source.statement_text("<nowhere>", 3) == ""
    broken = tmp_path / "cell.py"
    broken.write_text("%time model(x)\n")
    assert source.statement_text(str(broken), 1) == "%time model(x)"
