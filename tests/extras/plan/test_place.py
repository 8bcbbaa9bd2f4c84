"""`devwidget.place`: layouts that fit when they are run, with few hops, as good as trying every split."""

import functools
import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.plan.layout import (
    count_crossings,
    find_best_split,
    group_tied_blocks,
    list_assignments,
    neighbouring_splits,
)
from devwidget.extras.plan.layout_blocks import ModelBlock, Need, find_block_paths
from devwidget.extras.plan.records.answers import BlockCost, Layout, PlacedGpu, Rejected
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io
from tests.extras.plan.measured import measured, total
from tests.extras.plan.test_what_if import Reader, texts

pytest.importorskip("accelerate")
MIB = 1 << 20


def place(memory, model=None, gpus=2, **more):
    asked = {"loss_fn": total, "optimizer": torch.optim.AdamW, **more}
    return devwidget.place(model or Reader(), {"ids": texts(16)}, gpus=gpus, memory=memory, **asked)


def test_what_fits_on_one_gpu_stays_there():
    layout = place("1GiB")
    assert layout.fits
    assert (layout.hops, set(layout.device_map.values())) == (0, {0})


@functools.cache
def least_of_any_split():
    """The smallest memory with which any split in order over two GPUs fits, each run."""
    paths = find_block_paths(Reader())
    needs = []
    for cut in range(1, len(paths)):
        split = [int(index >= cut) for index in range(len(paths))]
        asked = {"gpus": 2, "memory": "1GiB", "loss_fn": total, "optimizer": torch.optim.AdamW}
        plan = devwidget.plan(Reader(), {"ids": texts(16)}, placement=dict(zip(paths, split, strict=True)), **asked)
        needs.append(max(device.peak for device in plan.devices))
    return min(needs)


def test_it_fits_wherever_a_split_in_order_does():
    least = least_of_any_split()
    assert place(int(least * 1.1)).fits
    assert not place(least // 2).fits


def test_a_layout_that_fits_tells_what_was_tried_before_and_runs_with_values_within_its_memory():
    least = least_of_any_split()
    layout = place(least)
    assert layout.fits
    assert layout.rejected[0].what == "6 on 0"
    assert "of its memory" in layout.rejected[0].why
    assert "tried before" in str(layout)
    mapped = [(path, f"cuda:{gpu}") for path, gpu in layout.device_map.items()]
    peaks = measured(Reader(), {"ids": texts(16)}, total, torch.optim.AdamW, gpus=2, device_map=mapped)
    assert max(peaks) <= least
    assert [gpu.on_card for gpu in layout.devices] == pytest.approx(peaks, rel=0.02)


def test_weights_that_have_no_room_are_not_run():
    layout = place("200KiB", gpus=4, loss_fn=None, optimizer=None)
    assert any(each.why.startswith("not run: the weights of GPU 0 are") for each in layout.rejected)


def test_where_no_split_has_room_for_the_weights_it_is_refused():
    with pytest.raises(DevwidgetError, match="no split of the 6 blocks of"):
        place("10KiB")


def test_tied_weights_are_told_and_counted_once():
    model = Reader()
    model.head.weight = model.words.weight
    layout = place("1GiB", model=model)
    assert layout.ties == (("words", "head"),)
    alone = layout.devices[0].on_card
    assert alone < place("1GiB").devices[0].on_card


def test_blocks_are_what_lists_hold_and_the_rest_stays_whole():
    assert find_block_paths(Reader(blocks=2)) == ["words", "blocks.0", "blocks.1", "head"]
    assert find_block_paths(nn.Linear(2, 2)) == [""]
    assert find_block_paths(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))) == ["0", "2"]


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x):
        return self.down(self.up(x))


def test_blocks_go_out_of_order_where_no_split_in_order_fits():
    with torch.no_grad():
        layout = devwidget.place(
            nn.Sequential(*map(Wide, (4096, 3072, 3072, 2048))), torch.randn(2, 8), gpus=2, memory="500KiB"
        )
    assert (layout.fits, layout.hops) == (True, 2)
    assert list(layout.device_map.values()) == [0, 1, 1, 0]


class Masked(Reader):
    """Has a tensor of its own, which no block holds."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, ids):
        return super().forward(ids) * self.scale.sum()


@pytest.mark.slow
def test_a_model_with_tensors_of_its_own_comes_apart_where_that_runs():
    assert find_block_paths(Masked()) == [""]
    assert find_block_paths(Masked(), finest=True)[:3] == ["scale", "words", "blocks.0"]
    layout = place(least_of_any_split(), model=Masked())
    assert layout.hops == 2
    assert layout.device_map["scale"] == 0


def chain(*weights):
    return [ModelBlock(str(number), size, 0, passed=1, tensors=frozenset({number})) for number, size in enumerate(weights)]


@pytest.mark.parametrize("weights", [(5, 1, 1, 1, 5, 3), (9, 1, 1, 1, 1)])
@pytest.mark.parametrize("used", [2, 3])
def test_the_fullest_part_is_as_little_full_as_in_any_split(weights, used):
    need = Need(chain(*weights))
    split = find_best_split(need, [10] * used, used)
    cuts = itertools.combinations(range(1, len(weights)), used - 1)
    parts = [[sum(weights[a:b]) for a, b in itertools.pairwise((0, *cut, len(weights)))] for cut in cuts]
    assert max(sum(w for w, at in zip(weights, split, strict=True) if at == gpu) for gpu in range(used)) == min(map(max, parts))


def test_splits_beside_another_differ_in_one_block_at_a_border():
    alone = [[0], [1], [2], [3]]
    assert list(neighbouring_splits([0, 0, 1, 1], alone)) == [[0, 1, 1, 1], [0, 0, 0, 1]]
    assert list(neighbouring_splits([0, 0], alone[:2])) == []
    assert list(neighbouring_splits([0, 0, 1, 0], [[0, 3], [1], [2]])) == [[0, 1, 1, 0], [0, 0, 0, 0]]


def test_hops_count_the_way_back_of_the_output():
    assert count_crossings([0, 0, 1, 1], chain(1, 1, 1, 1)) == (2, 2)
    assert count_crossings([0, 1, 1, 0], chain(1, 1, 1, 1)) == (2, 2)
    assert count_crossings([0, 0, 0, 0], chain(1, 1, 1, 1)) == (0, 0)


def test_what_is_tied_goes_together():
    blocks = chain(1, 1, 2)
    tied = [*blocks, replace(blocks[0], path="3")]
    assert group_tied_blocks(tied) == [[0, 3], [1], [2]]
    assert {(split[0], split[3]) for split in list_assignments(tied, [9, 9])} == {(0, 0)}
    assert find_best_split(Need(tied), [9, 9], 2) == [0, 0, 1, 0]


def test_a_tensor_that_is_no_module_goes_with_what_runs_after_it_and_makes_no_hop():
    blocks = chain(1, 1, 1)
    blocks[1] = replace(blocks[1], passed=0, is_module=False)
    assert group_tied_blocks(blocks) == [[0], [1, 2]]
    assert count_crossings([0, 1, 0], blocks) == (0, 0)


@pytest.mark.slow
def test_a_model_of_70_billion_parameters_is_placed_without_its_weights():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=8)).bfloat16().eval()
    with torch.no_grad():
        layout = devwidget.place(model, {"input_ids": torch.ones(1, 2048, dtype=torch.long)}, gpus=2, card="A100-80GB")
    assert layout.fits
    assert layout.hops == 2
    assert [each.why for each in layout.rejected] == ["not run: the weights of GPU 0 are 162.1% of its memory"]


GPUS = tuple(PlacedGpu(DeviceId("cuda", index), (index + 1) * MIB, 4 * MIB) for index in (0, 1))
BLOCKS = tuple(BlockCost(f"h.{index}", DeviceId("cuda", index // 2), MIB, MIB) for index in range(4))
LAYOUT = Layout("Net<2>", True, BLOCKS, GPUS, 2, 3 * MIB, (("h.0", "h.3"),), (Rejected("4 on 0", "cuda:0 takes 120.0%"),))


def test_text_page_frame_and_file_of_a_layout():
    assert str(LAYOUT).splitlines() == [
        "Layout: Net<2> over 2 GPUs: fits · 2 hops, 3.00 MiB in a forward",
        "             taken  capacity   weights      kept  blocks",
        "  cuda:0  1.00 MiB  4.00 MiB  2.00 MiB  2.00 MiB  h.0 ... h.1",
        "  cuda:1  2.00 MiB  4.00 MiB  2.00 MiB  2.00 MiB  h.2 ... h.3",
        "tied: h.0, h.3",
        "tried before",
        "  4 on 0  cuda:0 takes 120.0%",
    ]
    assert LAYOUT.device_map == {"h.0": 0, "h.1": 0, "h.2": 1, "h.3": 1}
    assert json_io.loads(json_io.dumps(LAYOUT)) == LAYOUT
    assert LAYOUT._repr_mimebundle_()["text/html"].partition("</style>")[2] in LAYOUT.to_html()
    assert "Net&lt;2&gt;" in LAYOUT.to_html()
    assert LAYOUT.to_frame()["path"].tolist() == ["h.0", "h.1", "h.2", "h.3"]
    assert LAYOUT.to_frame("devices")["on_card"].tolist() == [MIB, 2 * MIB]


class Trio(nn.Module):
    """One block, whose layers may nevertheless be apart."""

    def __init__(self):
        super().__init__()
        self.up, self.middle, self.down = (nn.Linear(1024, 1024) for _ in range(3))

    def forward(self, x):
        return self.down(torch.relu(self.middle(torch.relu(self.up(x)))))


def test_what_accelerate_proposes_is_run_where_no_split_of_blocks_fits():
    asked = {"gpus": 2, "memory": "9MiB"}
    with torch.no_grad():
        proposed = devwidget.plan(Trio(), torch.ones(1, 1024), placement="auto", **asked)
        layout = devwidget.place(Trio(), torch.ones(1, 1024), **asked)
    assert proposed.fits
    assert layout.fits
    assert layout.device_map == {"up": 0, "middle": 1, "down": 1}
    assert [gpu.on_card for gpu in layout.devices] == [device.peak for device in proposed.devices]
