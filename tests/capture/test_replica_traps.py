"""What replicas of DataParallel share with the original module, and outputs that cannot be gathered."""

import contextlib
import runpy
import warnings

import pytest

import devwidget
from tests.explained_programs import explained_and_cured, line, run_failing, written

HEAD = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)
"""
END = "model = nn.DataParallel(Net().cuda())\nout = model(torch.randn(8, 6).cuda())\n"


def record(folder, text, gpus=2):
    """The findings of a recording, which repairs what it can; without those about syncs."""
    file = folder / "recorded.py"
    file.write_text(text)
    with warnings.catch_warnings(), devwidget.simulate(gpus=gpus), devwidget.record(heal=True) as recording:
        warnings.simplefilter("ignore")
        with contextlib.suppress(Exception):
            runpy.run_path(str(file))
    return [found for found in recording.trace.findings if found.kind != "host-sync"]


STORED = {
    "a method, chosen in __init__": """        self.kernel = self.first if True else self.second
    def first(self, x):
        return self.layer(x)
    def second(self, x):
        return -self.layer(x)
    def forward(self, x):
        return self.kernel(x)
""",
    "a lambda": """        self.act = lambda x: torch.tanh(self.layer(x))
    def forward(self, x):
        return self.act(x)
""",
    "a partial": """        self.scaled = functools.partial(self._scaled, factor=2)
    def _scaled(self, x, factor):
        return x @ self.layer.weight.T * factor
    def forward(self, x):
        return self.scaled(x)
""",
}


@pytest.mark.parametrize("name", STORED)
def test_an_attribute_that_stays_bound_to_the_original_is_named_and_unbound(tmp_path, name):
    text = "import functools\n" + written(HEAD + STORED[name] + END)
    found = explained_and_cured(tmp_path, text)
    assert found.kind == "replica-state-lost"
    assert found.headline.endswith("calls the original module, which is on cuda:0")
    assert found.birth.line == text.splitlines().index("        self.layer = nn.Linear(6, 8)") + 2
    assert [each.kind for each in record(tmp_path, text)] == ["replica-state-lost"]


SHARED = {
    "methods in a list": ("        self.stages = [self.first]\n    def first(self, x):\n        return self.layer(x)\n"
                          "    def forward(self, x):\n        for stage in self.stages:\n            x = stage(x)\n"
                          "        return x\n", "self.stages"),
    "a list of modules": ("        self.again = [self.layer]\n    def forward(self, x):\n        return self.again[0](x)\n",
                          "self.again"),
    "a forward replaced from outside": ("    def forward(self, x):\n        return self.layer(x)\ndef wrap(model):\n"
                                        "    plain = model.forward\n    def doubled(x):\n        return 2 * plain(x)\n"
                                        "    model.forward = doubled\n    return model\n", "model.forward = doubled"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_what_no_edit_can_unbind_is_named_too(tmp_path, name):
    body, place = SHARED[name]
    end = END.replace("Net()", "wrap(Net())") if "wrap" in body else END
    text = written(HEAD + body + end)
    explanation = run_failing(tmp_path, text)
    (found,) = explanation.findings
    assert (found.kind, found.birth.line) == ("replica-state-lost", line(text, place))
    assert not any(fix.edits for fix in found.fixes)
    assert [each.kind for each in record(tmp_path, text)] == ["replica-state-lost"]


def test_attributes_that_bind_nothing_or_are_not_called_stay_silent(tmp_path):
    body = """        self.act, self.log, self.name = torch.relu, self._log, "first"
    def _log(self, x):
        return x.shape
    def first(self, x):
        return self.act(self.layer(x))
    def forward(self, x):
        self.log(x)
        return getattr(self, self.name)(x)
"""
    text = written(HEAD + body + END)
    assert run_failing(tmp_path, text) is None
    assert record(tmp_path, text) == []


def test_a_layer_of_torch_that_runs_is_not_taken_for_the_one_in_an_attribute(tmp_path):
    body = """        self.also = self.layer.forward
    def forward(self, x):
        return self.layer(x.to("cuda:0"))
"""
    text = written(HEAD + body + END)
    assert "replica-state-lost" not in [each.kind for each in (*run_failing(tmp_path, text).findings, *record(tmp_path, text))]


def test_a_tensor_left_behind_is_not_blamed_on_a_method_that_was_not_running(tmp_path):
    body = """        self.log, self.shift = self._log, torch.ones(8).cuda()
    def _log(self, x):
        return x.shape
    def forward(self, x):
        self.log(x)
        return self.layer(x) + self.shift
"""
    assert "replica-state-lost" not in [each.kind for each in record(tmp_path, written(HEAD + body + END))]


RNN = """class Net(nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.rnn = nn.GRU(6, 5, batch_first=True)
        self.hidden = torch.zeros(1, batch, 5, device="cuda")
    def forward(self, x):
        out, _ = self.rnn(x, self.hidden)
        return out
model = nn.DataParallel(Net(8).cuda())
out = model(torch.randn(8, 3, 6).cuda())
"""


def test_a_hidden_state_kept_for_the_whole_batch_is_created_for_the_part(tmp_path):
    text = written(RNN)
    found = explained_and_cured(tmp_path, text)
    assert found.kind == "parallel-io"
    assert found.headline == "`self.hidden` is for the whole batch of 8, and each of the 2 replicas gets all of it"
    assert (found.fault.line, found.birth.line) == (line(text, "self.rnn(x"), line(text, "self.hidden ="))
    assert "torch.zeros(1, x.size(0), 5, device=x.device)" in found.fixes[0].code


def test_a_batch_size_kept_in_an_attribute_is_taken_from_the_input(tmp_path):
    body = """        self.batch = 8
    def forward(self, x):
        return torch.cat([self.layer(x), x.new_zeros(self.batch, 1)], 1)
"""
    found = explained_and_cured(tmp_path, written(HEAD + body + END))
    assert found.headline.startswith("`self.batch` is for the whole batch of 8")


def test_a_state_passed_by_name_is_split_along_its_layers(tmp_path):
    text = written("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.GRU(6, 5, batch_first=True)
            def forward(self, x, h):
                return self.rnn(x, h)[0]
        model = nn.DataParallel(Net().cuda())
        out = model(torch.randn(8, 3, 6).cuda(), h=torch.zeros(1, 8, 5).cuda())
    """)
    (found,) = run_failing(tmp_path, text).findings
    assert found.headline == "an input of shape [1, 8, 5] is split along dimension 0, where the batch has size 8"
    assert [each.headline for each in record(tmp_path, text)] == [found.headline]


SCALED = """    def forward(self, x, scale):
        return self.layer(x) * scale
model = nn.DataParallel(Net().cuda())
out = model(torch.randn(8, 6).cuda(), {scale})
assert len(out) == 8
"""


def test_a_short_input_that_drops_samples_is_named(tmp_path):
    text = written(HEAD + SCALED.format(scale="torch.ones(1).cuda()"))
    (found,) = record(tmp_path, text)
    assert found.headline == "an input of shape [1] is split along dimension 0, where the batch has size 8"
    assert "4 of 8 samples reach no replica" in found.notes
    assert found.fault.line == line(text, "out = model(")
    assert record(tmp_path, written(HEAD + SCALED.format(scale="2.0"))) == []
    assert record(tmp_path, written(HEAD + SCALED.format(scale="torch.ones(8, 1).cuda()"))) == []


def test_a_wrong_size_of_the_model_is_not_blamed_on_the_split(tmp_path):
    body = """        self.head = torch.ones(7, 2).cuda()
    def forward(self, x):
        return self.layer(x) @ self.head.to(x.device)
"""
    assert run_failing(tmp_path, written(HEAD + body + END)).findings == ()


NUMBERS = {
    "a dict": '        return {"out": self.layer(x), "count": len(x), "sum": x.sum().item()}\n',
    "a variable": '        result = dict(out=self.layer(x), count=len(x))\n        return result\n',
    "a key set later": '        result = {"out": self.layer(x)}\n        result["count"] = len(x)\n        return result\n',
    "a tuple": "        return self.layer(x), len(x) > 2\n",
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_the_output_are_named(tmp_path, name):
    text = written(HEAD + "    def forward(self, x):\n" + NUMBERS[name] + END)
    (found,) = run_failing(tmp_path, text).findings
    assert found.kind == "parallel-io"
    assert "DataParallel gathers only tensors" in found.headline
    assert found.fixes[0].code == "torch.tensor([value], device=x.device)"
    assert found.fault.line == line(text, "        return ")
    assert [each.headline for each in record(tmp_path, text)] == [found.headline]


UNEQUAL = {
    "[row for row in self.layer(x)]": "`output` differs in length between replicas: 4 and 3",
    '{"out": self.layer(x), "rows": list(x)}': "`output['rows']` differs in length between replicas: 4 and 3",
    "self.layer(x)[:, :len(x)]": "`output` differs in shape between replicas: [4, 4] and [3, 3]",
    "{str(len(x)): x}": "`output` differs in keys between replicas: '4' and '3'",
}


@pytest.mark.parametrize("returned", UNEQUAL)
def test_outputs_that_differ_between_replicas_are_named(tmp_path, returned):
    end = END.replace("randn(8", "randn(7")
    text = written(HEAD + f"    def forward(self, x):\n        return {returned}\n" + end)
    (found,) = run_failing(tmp_path, text).findings
    assert found.headline == UNEQUAL[returned]
    assert [each.headline for each in record(tmp_path, text)] == [found.headline]


def test_text_is_gathered_into_nonsense_without_an_exception(tmp_path):
    text = written(HEAD + '    def forward(self, x):\n        return self.layer(x), "name"\n' + END)
    assert run_failing(tmp_path, text) is None
    assert [each.headline for each in record(tmp_path, text)] == [
        "`Net.forward` returns `output[1]`, and DataParallel gathers only tensors"
    ]


WIDE = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 50_000)
    def forward(self, x):
        return self.layer(x)
class WithLoss(Net):
    def forward(self, x, y):
        return F.cross_entropy(self.layer(x), y, reduction="none")
x, y = torch.randn(64, 6).cuda(), torch.randint(50_000, (64,)).cuda()
"""
OUTSIDE = "model = nn.DataParallel(Net().cuda())\nF.cross_entropy(model(x), y).backward()\n"
INSIDE = "model = nn.DataParallel(WithLoss().cuda())\nmodel(x, y).mean().backward()\n"


def test_outputs_that_fill_the_first_gpu_are_a_hint_with_their_bytes(tmp_path):
    (found,) = record(tmp_path, written(WIDE + OUTSIDE))
    assert (found.kind, found.severity) == ("parallel-io", "info")
    assert found.headline.startswith("cuda:0 gathers 12.2 MiB of outputs: its peak is ")
    assert found.fixes[0].summary.startswith("compute the loss in `forward`")


def test_a_loss_in_forward_and_outputs_without_a_loss_are_silent(tmp_path):
    assert record(tmp_path, written(WIDE + INSIDE)) == []
    assert record(tmp_path, written(WIDE + OUTSIDE.replace("F.cross_entropy(model(x), y).backward()", "model(x)"))) == []


def test_a_batch_that_leaves_a_gpu_without_work_is_a_hint(tmp_path):
    text = written(HEAD + "    def forward(self, x):\n        return self.layer(x)\n" + END.replace("randn(8", "randn(5"))
    (found,) = record(tmp_path, text, gpus=4)
    assert (found.kind, found.severity) == ("parallel-io", "info")
    assert found.headline == "a batch of 5 reaches 3 of 4 GPUs; cuda:3 got no sample"
    assert record(tmp_path, text, gpus=3) == []


def test_a_short_last_batch_says_nothing(tmp_path):
    end = END.replace(
        "out = model(torch.randn(8, 6).cuda())", "for size in (8, 8, 5):\n    out = model(torch.randn(size, 6).cuda())"
    )
    assert record(tmp_path, written(HEAD + "    def forward(self, x):\n        return self.layer(x)\n" + end), gpus=4) == []


def test_tensors_in_any_container_are_gathered_in_silence(tmp_path):
    body = '        return {"out": self.layer(x), "none": None, "both": [x, (x.sum().reshape(1),)], "empty": []}\n'
    text = written(HEAD + "    def forward(self, x):\n" + body + END)
    assert run_failing(tmp_path, text) is None
    assert record(tmp_path, text) == []


SPLIT = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8).to("cuda:0"), nn.Linear(8, 3).to("cuda:1")
    def forward(self, x):
        return self.leave(self.enter(x).to("cuda:1"))
net = Net()
model = nn.DataParallel(net)
out = model(torch.randn(8, 6).cuda())
"""


@pytest.mark.parametrize("mapped", [False, True])
def test_a_model_split_over_gpus_loses_its_wrapper(tmp_path, mapped):
    text = written(
        SPLIT.replace("net = Net()", 'net = Net(); net.hf_device_map = {"enter": 0, "leave": 1}') if mapped else SPLIT
    )
    found = explained_and_cured(tmp_path, text)
    assert found.kind == "parallel-misplaced"
    assert found.fixes[0].code == "model = net"
    others = ["move the model to `device_ids[0]`"] if not mapped else []
    assert [fix.summary for fix in found.fixes[1:]] == others


def test_an_error_while_gathering_is_one_to_explain():
    from devwidget.post_mortem import is_about_placement

    with warnings.catch_warnings(), devwidget.simulate(gpus=2):
        warnings.simplefilter("ignore")
        space = {}
        exec(written(HEAD + "    def forward(self, x):\n        return len(x)\n" + END.partition("out =")[0]), space)
        with pytest.raises(TypeError) as raised:
            space["model"](space["torch"].randn(4, 6).cuda())
    assert is_about_placement(raised.value)
