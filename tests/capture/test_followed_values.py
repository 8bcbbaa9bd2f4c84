"""Values followed back through lines that still run: comprehensions, and what was moved to where another tensor is."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_diagnosis import line_of


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def explained(model, *batch):
    with pytest.raises(RuntimeError) as caught:
        model(*batch)
    return devwidget.explain(caught.value).findings


def on_gpu(*shape):
    return torch.ones(*shape, device="cuda:0")


class Unpacked(nn.Module):
    def parts(self, x):
        return x, torch.zeros(x.shape[-1])

    def forward(self, x):
        kept, beside = (each * 2 for each in self.parts(x))
        return kept + beside


def test_what_a_comprehension_unpacks_is_the_same_item_of_what_it_runs_over():
    (found,) = explained(Unpacked(), on_gpu(2, 3))
    assert found.birth.line == line_of(Unpacked, "torch.zeros")


class Zipped(nn.Module):
    def forward(self, x):
        moved, stayed = on_gpu(3), torch.ones(3)
        scale, shift = [a + b for a, b in zip((moved, stayed), (moved * 2, stayed * 2), strict=True)]
        return x * scale + shift


def test_variables_of_a_zip_are_told_apart():
    (found,) = explained(Zipped(), on_gpu(2, 3))
    assert found.birth.line == line_of(Zipped, "moved, stayed =")


class Shadowed(nn.Module):
    def forward(self, x):
        pairs = [torch.ones(3), torch.ones(3)]
        (first, _) = [x.exp() for x in pairs]
        return x + first


def test_a_variable_of_a_comprehension_is_not_the_argument_of_its_name():
    (found,) = explained(Shadowed(), on_gpu(2, 3))
    assert found.birth.line == line_of(Shadowed, "pairs =")


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("table", torch.ones(16, 4))

    def forward(self, x, positions):
        table = self.table
        if table.device != positions.device:
            table = table.to(positions.device)
            self.table = table
        return self.lin(x) * table[positions]


class Follower(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary()

    def forward(self, x):
        positions = torch.arange(x.shape[1])
        return self.rotary(x, positions)


def test_a_buffer_that_was_moved_to_where_a_tensor_is_blames_the_tensor():
    (found,) = explained(Follower().to("cuda:0"), on_gpu(2, 4, 4))
    assert found.birth.line == line_of(Follower, "torch.arange")
    assert "device=x.device" in found.fixes[0].code


class Placed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, x, positions=None):
        if positions is not None:
            positions = positions.view(-1, x.shape[1])
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
            positions = positions.unsqueeze(0)
        return x + self.table(positions)


class Placing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Placed()

    def forward(self, x):
        return self.inner(
            x,
            positions=torch.zeros(x.shape[:2], dtype=torch.long),
        )


def test_a_branch_for_a_missing_argument_is_not_blamed_where_the_caller_computed_one():
    (found,) = explained(Placing().to("cuda:0"), on_gpu(2, 4, 4))
    assert found.birth.line == line_of(Placing, "torch.zeros")


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.ones(4))

    def forward(self, x):
        states = torch.zeros(x.shape)
        for t in range(x.shape[1]):
            states[:, t] = x[:, t] * self.decay
        return states


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scan, self.gate = Scan(), nn.Linear(4, 4)

    def forward(self, x):
        scanned = self.scan(x.exp())
        return scanned * self.gate(x)


def test_what_a_layer_with_weights_elsewhere_returned_is_followed_into_the_layer():
    (found,) = explained(Mixer().to("cuda:0"), on_gpu(2, 4, 4))
    assert found.birth.line == line_of(Scan, "torch.zeros")


def cast_back(out, wanted):
    first_dtype = wanted.dtype
    out = torch.zeros(out.shape) + 1
    return out.transpose(0, 1).to(first_dtype, memory_format=torch.contiguous_format)


def test_a_cast_to_a_variable_is_no_move():
    def act(x):
        return cast_back(x, x) * x

    (found,) = explained(act, on_gpu(3, 3))
    assert found.birth.line == line_of(cast_back, "torch.zeros")


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn = nn.Embedding(9, 3), nn.LSTM(3, 3, batch_first=True)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=False)
        return self.rnn(packed)[1][0]


def test_lengths_that_a_library_has_sorted_bear_the_name_of_those_that_it_was_given():
    ids, lengths = torch.ones(2, 4, dtype=torch.long, device="cuda:0"), torch.tensor([3, 4], device="cuda:0")
    (found,) = devwidget.trace(Packed().to("cuda:0"), (ids, lengths)).findings
    assert found.operands == ("self.table(ids) float32[2, 4, 3] cuda:0", "lengths int64[2] cuda:0")
    assert found.fixes[0].verified
    assert "lengths.cpu()" in found.fixes[0].code


class Sign(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["mean"] = torch.zeros(p.shape)
            mean = state["mean"]
            mean.mul_(0.9).add_(p.grad)


def test_an_item_is_born_where_the_same_function_put_it():
    model = nn.Linear(3, 3).to("cuda:0")
    optimizer = Sign(model.parameters(), {})
    model(on_gpu(2, 3)).sum().backward()
    (found,) = explained(lambda _: optimizer.step(), None)
    assert (found.kind, found.birth.line) == ("wrong-device", line_of(Sign, "torch.zeros"))
    assert "device=p.device" in found.fixes[0].code


def test_state_that_a_program_put_elsewhere_goes_back_before_the_step():
    model = nn.Linear(3, 3).to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(_):
        model(on_gpu(2, 3)).sum().backward()
        optimizer.step()

    step(None)
    for state in optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].cpu()
    (found,) = explained(step, None)
    (edit,) = found.fixes[0].edits
    assert found.kind == "optimizer-misplaced"
    assert edit.first == line_of(step, "optimizer.step()")
    exec(found.fixes[0].code, {"optimizer": optimizer})
    step(None)


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x)


def test_a_transform_of_half_precision_is_computed_in_single_and_stays_complex():
    (found,) = devwidget.trace(Spectrum(), on_gpu(2, 8).bfloat16()).findings
    assert (found.kind, found.fixes[0].verified) == ("unsupported-on-device", True)
    assert found.fixes[0].code == "return torch.fft.rfft(x.float())"


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3))
        self.inner[0].register_forward_hook(lambda module, args, out: out * torch.ones(3))

    def forward(self, x):
        return self.inner(x)


def test_a_fault_in_a_hook_is_in_the_module_that_has_the_hook():
    trace = devwidget.trace(Hooked().to("cuda:0"), on_gpu(2, 3))
    assert [fault.module for fault in trace.faults] == ["inner.0"]


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, mask=None):
        if mask is None:
            mask = torch.ones(x.shape).bool()
        else:
            rows = len(mask)
            mask = mask.view(rows, -1)
        return mask * self.lin(x)


def test_an_argument_that_a_batch_in_stars_lacks_was_missing():
    model = Masked().to("cuda:0")
    (found,) = explained(lambda batch: model(**dict(batch)), {"x": on_gpu(2, 3)})
    assert found.birth.line == line_of(Masked, "torch.ones")


def test_an_argument_that_a_batch_in_stars_has_is_not_made_by_the_module():
    model = Masked().to("cuda:0")
    (found,) = explained(lambda batch: model(**dict(batch)), {"x": on_gpu(2, 3), "mask": torch.ones(2, 3)})
    assert found.birth is None or found.birth.line != line_of(Masked, "torch.ones")
