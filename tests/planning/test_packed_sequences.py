"""Plans of sequences that are packed, before the model or within it."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import devwidget
from devwidget.capture.step.batch import Arguments
from devwidget.planning.rehearsal import MeanStep
from devwidget.records.errors import DevwidgetError, SimulationError

LENGTHS = [9, 3, 7, 1]
X = torch.randn(4, 9, 16)


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
    return out[0].data.sum() if isinstance(out, tuple) else out.sum()


def plan(model, *batch):
    asked = {"gpus": 1, "memory": "1GiB", "loss_fn": total, "optimizer": torch.optim.AdamW}
    return devwidget.plan(model, batch, **asked)


def measured(model, *batch):
    """The peak of the second step with values."""
    with devwidget.simulate(1):
        model.cuda()
        there = tuple(part.cuda() if isinstance(part, PackedSequence) or part is X else part for part in batch)
        step = MeanStep(model, Arguments(there, {}), total, torch.optim.AdamW(model.parameters()))
        for _ in range(2):
            for _, run in step.phases():
                run()
        return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor(LENGTHS)])
def test_a_model_that_packs_is_predicted(kind, lengths):
    assert plan(Tagger(kind), X, lengths).devices[0].peak == measured(Tagger(kind), X, lengths)


def test_lengths_that_the_model_brings_to_the_cpu_go_to_the_gpu_with_the_batch():
    assert plan(FromGpu(), X, torch.tensor(LENGTHS)).fits


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_packed_batch_is_predicted(kind):
    packed = pack_padded_sequence(X, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    model = kind(16, 32, batch_first=True)
    assert plan(model, packed).devices[0].peak == pytest.approx(measured(kind(16, 32, batch_first=True), packed), rel=0.02)


def test_without_values_packing_and_unpacking_gives_what_it_gives_with_them():
    shapes = []
    for compute in (True, False):
        with devwidget.simulate(1, compute=compute):
            packed = pack_padded_sequence(X.cuda().requires_grad_(), torch.tensor(LENGTHS), True, enforce_sorted=False)
            padded, lengths = pad_packed_sequence(packed, batch_first=True)
            padded.sum().backward()
            assert str(packed.batch_sizes.device) == str(lengths.device) == "cpu"
            shapes.append((packed.data.shape, packed.batch_sizes.tolist(), padded.shape, lengths.tolist(), padded.device))
    assert shapes[0] == shapes[1]


class Counted(Tagger):
    """Its lengths follow from what the weights make of the batch."""

    def forward(self, x, lengths):
        return super().forward(x, (self.head.weight.sum() + lengths).long().cpu())


def test_lengths_that_nobody_knows_are_refused():
    with pytest.raises(SimulationError, match="decides by values that a plan does not have"):
        plan(Counted(), X, torch.tensor(LENGTHS))


def test_a_packed_batch_has_no_size_that_could_be_changed():
    packed = pack_padded_sequence(X, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    with pytest.raises(DevwidgetError, match="no size to be changed"):
        plan(nn.LSTM(16, 32, batch_first=True), packed).largest_batch()
