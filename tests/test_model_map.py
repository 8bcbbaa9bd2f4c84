"""The picture of a model on its devices, for models that torch's own pipelining has cut."""

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import SplitPoint, pipeline

import devwidget
from devwidget.report.text.device_words import block_kind, block_name, crossing_words
from devwidget.views.devices import make_picture
from devwidget.views.placement import tabulate_snapshot


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


class Stages(nn.Module):
    """The stages of a pipeline in one process, each on its GPU."""

    def __init__(self, pipe):
        super().__init__()
        self.stages = nn.ModuleList(pipe.get_stage_module(at).to(f"cuda:{at}") for at in range(pipe.num_stages))

    def forward(self, x):
        for at, stage in enumerate(self.stages):
            x = stage(x.to(f"cuda:{at}"))
        return x


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")  # torch's own, while it exports
def test_the_stages_of_a_pipeline_are_columns_and_what_crosses_goes_from_one_to_the_next():
    cuts = {f"layers.{at}": SplitPoint.BEGINNING for at in (1, 2)}
    pipe = pipeline(Tower(), mb_args=(torch.ones(2, 8),), split_spec=cuts)
    with devwidget.simulate(gpus=3):
        model = Stages(pipe)
        trace = devwidget.trace(model, torch.ones(2, 8, device="cuda:0"))
        snapshot = devwidget.snapshot(model)
        drawn = make_picture(snapshot, tabulate_snapshot(snapshot), trace)
    assert [(block_name(block), block_kind(block), str(block.device)) for block in drawn.blocks] == [
        (f"stages.{at}", "GraphModule", f"cuda:{at}") for at in range(3)
    ]
    assert [(way.source, way.target) for way in drawn.ways] == [(0, 1), (1, 2)]
    assert crossing_words(drawn) == ["Forward: 2 hops, 128 B."]
