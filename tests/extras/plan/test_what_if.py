"""`Plan.largest_batch` and `Plan.cheapest_change`: what they say is what full plans say, and what steps with values do."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import devwidget
from devwidget.extras.plan.changes import Changed
from devwidget.extras.plan.questions import answer_at_once
from devwidget.extras.plan.records.answers import AskedSize, Changes, LargestBatch, Room, Tried, find_first
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.extras.plan.sizes import search_largest
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io
from tests.extras.plan.measured import measured, total

MIB = 1 << 20


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Reader(nn.Module):
    """Words, blocks and a head, over texts of any length."""

    def __init__(self, width=64, blocks=4):
        super().__init__()
        self.words, self.blocks = nn.Embedding(50, width), nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 50)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def texts(batch, length=32):
    return torch.zeros(batch, length, dtype=torch.long)


def plan(batch=8, memory="24MiB", model=None, **more):
    asked = {"gpus": 1, "memory": memory, "loss_fn": total, "optimizer": torch.optim.AdamW, **more}
    return devwidget.plan(model or Reader(), {"ids": texts(batch)}, **asked)


def taken(planned):
    return max(device.on_card for device in planned.devices)


@pytest.mark.parametrize("batch", [8, pytest.param(1, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow)])
def test_the_largest_batch_fits_and_one_sample_more_does_not(batch):
    found = plan(batch).largest_batch()
    assert found.size > 1
    assert plan(found.size).fits
    assert not plan(found.size + 1).fits
    assert found.on_card == taken(plan(found.size))
    assert len(found.runs) < 10


def test_the_largest_batch_runs_with_values_and_a_larger_one_is_out_of_memory():
    size = plan().largest_batch().size
    peaks = [measured(Reader(), {"ids": texts(each)}, total, torch.optim.AdamW)[0] for each in (size, size + 1)]
    assert peaks[0] <= 24 * MIB < peaks[1]


def test_where_not_even_one_sample_fits_the_answer_is_none():
    found = plan(memory="1MiB").largest_batch()
    assert (found.size, found.capacity) == (0, MIB)
    assert "not even one sample fits" in str(found)


@pytest.mark.parametrize("need", [lambda n: n * n, lambda n: 50 * (n // 10), lambda n: 3 * n if n < 40 else 5 * n])
def test_a_need_along_no_line_is_followed_too(need):
    def planned(size):
        return Plan("Net", "as is", (), (DevicePlan(DeviceId("cuda", 0), 1000, need(size)),))

    plans = {4: planned(4)}
    search = search_largest(plans, lambda size: Changed(batch=size))
    largest = answer_at_once(search, lambda wanted: planned(wanted.batch))
    assert largest == max(size for size in range(1, 1000) if need(size) <= 1000)
    assert len(plans) <= 24


class Recomputed(Reader):
    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Halved(Reader):
    def forward(self, ids):
        with torch.autocast("cuda", torch.bfloat16):
            return super().forward(ids)


@pytest.mark.slow
def test_each_change_takes_what_a_full_plan_of_it_takes_and_they_are_ranked_alike():
    asked = plan(64, memory="20MiB")
    changes = {change.what: change for change in asked.cheapest_change().changes}
    one_by_one = Reader()
    by_hand = {
        "activation checkpointing": plan(64, model=Recomputed()),
        "SGD without momentum": plan(64, optimizer=torch.optim.SGD),
        "weights in bfloat16": plan(64, model=Reader().bfloat16()),
        "autocast to bfloat16": plan(64, model=Halved()),
        "one parameter after the other": plan(
            64, model=one_by_one, optimizer=torch.optim.AdamW(one_by_one.parameters(), foreach=False)
        ),
    }
    for what, full in by_hand.items():
        assert changes[what].on_card == pytest.approx(taken(full), rel=0.01), what
        assert asked.cheapest_change().saved_by(changes[what]) == taken(asked) - changes[what].on_card
    assert sorted(by_hand, key=lambda what: changes[what].on_card) == sorted(by_hand, key=lambda what: taken(by_hand[what]))


def test_those_that_fit_come_first_and_the_others_by_what_they_save():
    changes = plan(64, memory="10MiB").cheapest_change()
    fits = [change.fits for change in changes.changes]
    saved = [changes.saved_by(change) for change in changes.changes if not change.fits]
    assert fits == sorted(fits, reverse=True)
    assert saved == sorted(saved, reverse=True)
    assert changes.cheapest == changes.changes[0]
    assert not plan(64, memory="10MiB").fits


@pytest.mark.slow
def test_a_batch_and_a_text_that_fit_are_proposed():
    changes = {change.what for change in plan(64, memory="4MiB").cheapest_change().changes if change.fits}
    assert any(what.startswith("a batch of ") for what in changes)
    assert any(what.startswith("a text of ") for what in changes)


def out_of_memory(batch, times):
    """Whether steps of so many batches each run out of memory, with values."""
    with devwidget.simulate(1, memory="4MiB"):
        model, ids = Reader().cuda(), texts(batch).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        try:
            for _ in range(3):
                for _ in range(times):
                    out = model(ids)
                    total(out).backward()
                optimizer.step()
                optimizer.zero_grad()
        except torch.cuda.OutOfMemoryError:
            return True
    return False


@pytest.mark.slow
def test_gradients_of_a_batch_that_is_proposed_may_be_accumulated_beside_each_other():
    changes = plan(64, memory="4MiB").cheapest_change().changes
    sizes = {each.what: int("".join(filter(str.isdigit, each.what))) for each in changes if "batch" in each.what and each.fits}
    alone = max(size for what, size in sizes.items() if "accumulated" not in what)
    accumulated = max(size for what, size in sizes.items() if "accumulated" in what)
    assert accumulated < alone
    assert (out_of_memory(alone, 1), out_of_memory(alone, 2)) == (False, True)
    assert not out_of_memory(accumulated, 5)
    assert out_of_memory(accumulated + 1, 2)


def test_without_a_backward_nothing_is_accumulated():
    with torch.no_grad():
        asked = devwidget.plan(Reader(), {"ids": texts(64)}, gpus=1, memory="2MiB")
    whats = [each.what for each in asked.cheapest_change().changes]
    assert any(what.startswith("a batch of") for what in whats)
    assert not any("accumulated" in what for what in whats)


class Keeping(torch.optim.SGD):
    def zero_grad(self, set_to_none=False):
        super().zero_grad(set_to_none=set_to_none)


def test_gradients_that_are_kept_may_be_let_go():
    change = plan(1, optimizer=Keeping).cheapest_change().changes
    freed = next(each for each in change if each.what == "gradients set to none")
    assert freed.on_card == taken(plan(1, optimizer=torch.optim.SGD))


class WithLoss(Reader):
    def forward(self, ids):
        return super().forward(ids).sum()


def test_a_change_that_fails_says_why():
    changes = plan(2, gpus=2, model=WithLoss(), loss_fn=lambda out: out).cheapest_change().changes
    failed = next(change for change in changes if change.what == "placement: data parallel")
    assert "the backward fails in this placement" in failed.problem
    assert not failed.fits


def test_a_loaded_plan_cannot_be_asked():
    loaded = json_io.loads(json_io.dumps(plan()))
    with pytest.raises(DevwidgetError, match="its model is not here"):
        loaded.largest_batch()


def size(batch, mib, fit):
    return Tried("", Room(4 * MIB, mib * MIB, fit), setting=AskedSize(batch))


LARGEST = LargestBatch("Net<2>", (size(4, 2, "fits"), size(6, 3, "fits")))
CHANGES = Changes(
    "Net",
    (
        Tried("autocast", Room(4 * MIB, 3 * MIB, "fits"), "", "with torch.autocast():", "eight bits"),
        Tried("other", Room(4 * MIB, 10 * MIB, "does not fit"), cost="time"),
    ),
    Room(4 * MIB, 9 * MIB, "does not fit"),
)


def test_text_page_frame_and_file_of_an_answer():
    assert str(LARGEST).splitlines() == [
        "Net<2>: a batch of 6 fits, 3.00 MiB of 4.00 MiB; a larger one does not",
        "  batch  on the card",
        "      4     2.00 MiB  fits",
        "      6     3.00 MiB  fits",
        "2 plans run",
    ]
    assert str(CHANGES).splitlines()[0] == "Net: the cheapest change that fits: autocast · 9.00 MiB without a change"
    assert "-1.00 MiB" in str(CHANGES)
    assert "Net&lt;2&gt;" in LARGEST.to_html()
    assert CHANGES.to_frame()["saved"].tolist() == [6 * MIB, -MIB]
    assert LARGEST.to_frame()["size"].tolist() == [4, 6]
    for answer in (LARGEST, CHANGES):
        assert json_io.loads(json_io.dumps(answer)) == answer
        assert answer._repr_mimebundle_()["text/html"] in answer.to_html()


def test_the_largest_batch_that_fits_by_more_than_plans_were_off_is_told_beside_it():
    found = plan(8, memory="20MiB").largest_batch()
    safe = plan(found.safe_size, memory="20MiB")
    assert 0 < found.safe_size <= found.size
    assert (safe.fit, plan(found.safe_size + 1, memory="20MiB").fit == "fits") == ("fits", False)
    assert plan(found.size, memory="20MiB").fits
    closely = LargestBatch("Net", (size(7, 1, "fits"), size(9, 2, "fits by less")))
    assert "up to 7 fit by more than the error margin" in str(closely)


@pytest.mark.slow
def test_a_plan_keeps_what_it_was_asked_for_its_page():
    asked = plan(64, memory="10MiB")
    assert asked.answers == ()
    changes, cards = asked.cheapest_change(), asked.on_cards("T4", "a100-40gb")
    assert asked.answers == (changes, cards)
    assert [card.setting.card for card in cards.tried] == ["T4", "A100-40GB"]
    assert find_first(cards.tried) == cards.tried[0]
    assert cards.tried[0].on_card == plan(64, memory=None, card="T4").devices[0].on_card
    page = asked.to_html()
    assert all(word in page for word in ("What would make it fit", "The same step on other cards"))
    with pytest.raises(DevwidgetError, match="unknown card 'T5'"):
        asked.on_cards("T5")


def test_a_batch_of_two_million_tokens_with_a_mask_is_planned():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100}
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    ids = torch.ones(500, 4096, dtype=torch.long)
    with torch.no_grad():
        masked, plain = (devwidget.plan(model, {"input_ids": ids, **more}, memory="1TiB", loop="step")
                         for more in ({"attention_mask": ids}, {}))  # fmt: skip
    assert taken(masked) == pytest.approx(taken(plain), rel=0.01)
