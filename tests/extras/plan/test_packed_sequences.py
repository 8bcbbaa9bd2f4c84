"""Plans of sequences that are packed, before the model or within it."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import devwidget
from devwidget.capture.step.batch import Arguments
from devwidget.extras.plan.rehearsal import MeanStep
from devwidget.records.errors import DevwidgetError, SimulationError

LENGTHS = [9, 3, 7, 1]
X = torch.randn(4, 9, 16)
ABOUT = 0.2


class Tagger(nn.Module):
    """Packs what it is given, by lengths as they are given."""

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.rnn, self.head = kind(16, 32, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(64, 3)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return self.head(pad_packed_sequence(out, batch_first=True)[0])


class FromGpu(Tagger):
    def forward(self, x, lengths):
        return super().forward(x, lengths.cpu())


def total(out):
    first = out[0] if isinstance(out, tuple) else out
    return (first.data if isinstance(first, PackedSequence) else first).sum()


def plan(model, *batch):
    asked = {"gpus": 1, "memory": "1GiB", "loss_fn": total, "optimizer": torch.optim.AdamW}
    return devwidget.plan(model, batch, **asked)


def _is_input(part):
    return isinstance(part, torch.Tensor) and part.is_floating_point()


@contextlib.contextmanager
def without_onednn():
    """By the names in C: those in Python may be locked, and set more than this."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)


def measured(model, *batch):
    """The peak of the second step with values; without oneDNN's one kernel for a whole `lstm`, whose workspace no GPU has."""
    with without_onednn(), devwidget.simulate(1):
        model.cuda()
        there = tuple(part.cuda() if isinstance(part, PackedSequence) or _is_input(part) else part for part in batch)
        step = MeanStep(model, Arguments(there, {}), total, torch.optim.AdamW(model.parameters()))
        for _ in range(2):
            for _, run in step.list_phases():
                run()
        return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize(
    ("kind", "lengths"), [(nn.LSTM, LENGTHS), pytest.param(nn.GRU, torch.tensor(LENGTHS), marks=pytest.mark.slow)]
)
def test_a_model_that_packs_is_predicted(kind, lengths):
    planned = plan(Tagger(kind), X, lengths).devices[0].peak
    assert planned == pytest.approx(measured(Tagger(kind), X, lengths), rel=ABOUT)


def test_lengths_that_the_model_brings_to_the_cpu_go_to_the_gpu_with_the_batch():
    assert plan(FromGpu(), X, torch.tensor(LENGTHS)).fits


@pytest.mark.parametrize("kind", [nn.LSTM, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (nn.GRU, nn.RNN))])
@pytest.mark.parametrize(
    ("more", "is_packed"), [({}, False), ({"num_layers": 2, "bidirectional": True, "dropout": 0.1, "bias": False}, True)]
)
def test_a_batch_of_a_recurrent_layer_is_predicted(kind, more, is_packed):
    wide = torch.randn(8, 12, 48)
    lengths = torch.tensor([12, 5, 11, 3, 9, 1, 1, 12])
    batch = pack_padded_sequence(wide, lengths, batch_first=True, enforce_sorted=False) if is_packed else wide
    planned = plan(kind(48, 96, batch_first=True, **more), batch).devices[0].peak
    assert planned == pytest.approx(measured(kind(48, 96, batch_first=True, **more), batch), rel=ABOUT)


def test_weights_that_project_what_an_lstm_says_are_multiplied():
    packed = pack_padded_sequence(X, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    model = nn.LSTM(16, 32, proj_size=8, batch_first=True)
    assert plan(model, packed).devices[0].peak == pytest.approx(measured(model, packed), rel=ABOUT)


class Counted(Tagger):
    """Its lengths follow from what the weights make of the batch."""

    def forward(self, x, lengths):
        return super().forward(x, (self.head.weight.sum() + lengths).long().cpu())


def test_lengths_that_nobody_knows_are_refused():
    with pytest.raises(SimulationError, match="depends on values that a plan does not have"):
        plan(Counted(), X, torch.tensor(LENGTHS))


def test_a_packed_batch_has_no_size_that_could_be_changed():
    packed = pack_padded_sequence(X, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    with pytest.raises(DevwidgetError, match="size of the batch cannot be changed"):
        plan(nn.LSTM(16, 32, batch_first=True), packed).largest_batch()
