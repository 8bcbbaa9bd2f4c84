"""What the line of a DataParallel worker made on the CPU, told from the text of its traceback alone."""

import pytest

from tests.explained_programs import explained_and_cured, line, run_failing, written

WORKER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def noise(self, n):
        return torch.randn(n)
    def forward(self, x):
        scale = {made}
        return {value}  # fails
nn.DataParallel(Net().cuda())(torch.randn(6, 4).cuda())
"""


@pytest.mark.parametrize(
    ("made", "value", "birth"),
    [
        ("2.0", "self.lin(x) * torch.ones(4)", "# fails"),
        ("torch.linspace(0, 1, 4)", "self.lin(x) * scale", "scale = "),
        ("torch.tensor(2.0)", "torch.cat([x * scale, torch.zeros(3, 4)])", "# fails"),
    ],
    ids=["on the line", "above it", "beside a number"],
)
def test_a_factory_without_a_device_is_the_cause(tmp_path, made, value, birth):
    text = written(WORKER.format(made=made, value=value))
    found = explained_and_cured(tmp_path, text)
    assert (found.kind, found.fault.line, found.birth.line) == ("wrong-device", line(text, "# fails"), line(text, birth))


@pytest.mark.parametrize("value", ["self.lin(x) * torch.ones(4) + self.noise(4)", "x + self.noise(4) * torch.tensor(2.0)"])
def test_nothing_is_blamed_where_a_function_of_the_user_may_have_made_it(tmp_path, value):
    explanation = run_failing(tmp_path, written(WORKER.format(made="2.0", value=value)))
    assert explanation.findings == ()


def test_a_device_that_an_attribute_names_is_the_cause(tmp_path):
    text = written("""
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.device = nn.Linear(4, 4), "cuda:0"
        def forward(self, x):
            kept = torch.ones(4, 4, device=self.device).tril()
            return self.lin(x).masked_fill(kept[0] == 0, 0.0)
    nn.DataParallel(Masked().cuda())(torch.randn(6, 4).cuda())
    """)
    found = explained_and_cured(tmp_path, text)
    assert (found.kind, found.birth.line) == ("wrong-device", line(text, "kept = "))
