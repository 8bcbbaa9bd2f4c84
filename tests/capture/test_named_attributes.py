"""Attributes whose names a loop puts together: where they were set, and what `getattr` reads of them after an exception."""

import pytest

from devwidget.capture.source_code.classes import attribute_assignment
from tests.explained_programs import explained_and_cured, line, written

PYRAMID = """
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
            for i in range(2):
                setattr(self, f"scale{i}", torch.rand(4))

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x) * getattr(self, f"scale{i}")
            return x

    Pyramid().cuda()(torch.ones(2, 4).cuda())
"""


def test_what_getattr_reads_by_a_name_put_together_is_found_where_it_was_set(tmp_path):
    text = written(PYRAMID)
    found = explained_and_cured(tmp_path, text)
    assert (found.kind, found.birth.line) == ("unregistered-tensor", line(text, "setattr("))
    assert found.fault.line == line(text, "getattr(")


@pytest.mark.parametrize(
    ("statement", "attribute", "is_it"),
    [
        ('self.register_buffer(f"scale{i}", table)', "scale3", True),
        ('setattr(self, f"{kind}_scale", table)', "level_scale", True),
        ('setattr(self, f"scale{i}", table)', "offset3", False),
        ("setattr(self, name, table)", "scale3", False),
        ('setattr(self, f"{name}", table)', "scale3", False),
    ],
)
def test_a_name_put_together_is_an_attribute_if_its_text_says_so(tmp_path, statement, attribute, is_it):
    file = tmp_path / "program.py"
    file.write_text(f"class Net:\n    def __init__(self, i, kind, name, table):\n        {statement}\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    assert (attribute_assignment(names["Net"], attribute) is not None) is is_it
