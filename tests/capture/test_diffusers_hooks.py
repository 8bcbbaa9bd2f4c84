"""Modules that hooks of diffusers and of accelerate move: shown, recorded and explained on virtual GPUs."""

import pytest
import torch
from torch import nn

import devwidget

hooks = pytest.importorskip("diffusers.hooks")

SIZES = {"sample_size": 8, "layers_per_block": 1, "block_out_channels": (8, 16), "norm_num_groups": 4}


@pytest.fixture(autouse=True)
def _gpu():
    with devwidget.simulate(gpus=1):
        yield


def small_unet():
    from diffusers import UNet2DModel

    return UNet2DModel(
        **SIZES, down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D")
    ).requires_grad_(requires_grad=False)


def facts_of(model, path=""):
    return next(module for module in devwidget.snapshot(model).modules if module.path == path)


class Coder(nn.Module):
    """Has a layer outside of its blocks, and a second entry, as the autoencoders of diffusers have."""

    def __init__(self):
        super().__init__()
        self.quant = nn.Conv2d(3, 3, 1)
        self.blocks = nn.ModuleList([nn.Conv2d(3, 3, 1)])

    def decode(self, x):
        return self.blocks[0](self.quant(x))

    def forward(self, x):
        return self.decode(x)


def offload_by_groups(model, level="block_level"):
    count = 1 if level == "block_level" else None
    hooks.apply_group_offloading(
        model,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        offload_type=level,
        num_blocks_per_group=count,
    )
    return model


@pytest.mark.parametrize("level", ["block_level", "leaf_level"])
def test_group_offloading_is_shown_and_its_moves_are_no_faults(level):
    model = offload_by_groups(small_unet(), level)
    shown = facts_of(model, "conv_in" if level == "leaf_level" else "up_blocks.0")
    assert (shown.wrapper, shown.note) == ("diffusers", "runs on cuda, offloaded between calls")
    assert not [tensor for module in devwidget.snapshot(model).modules for tensor in module.tensors if "hook" in tensor.name]
    with devwidget.record() as recording:
        model(torch.randn(1, 3, 8, 8, device="cuda"), 1)
    assert not recording.trace.findings
    assert {move.cause for move in recording.trace.moves} == {"hook"}


def test_a_pipeline_that_offloads_its_model_is_shown_and_has_no_faults():
    from diffusers import DDPMPipeline, DDPMScheduler

    pipe = DDPMPipeline(small_unet(), DDPMScheduler(num_train_timesteps=10))
    pipe.set_progress_bar_config(disable=True)
    pipe.enable_model_cpu_offload(device="cuda")
    assert facts_of(pipe.unet).note == "runs on cuda:0"
    with devwidget.record() as recording:
        pipe(num_inference_steps=2, output_type="np")
    assert not recording.trace.findings
    assert "hook" in {move.cause for move in recording.trace.moves}


def explained(step):
    with pytest.raises(RuntimeError) as raised:
        step()
    (found,) = devwidget.explain(raised.value).findings
    return found


def test_a_method_that_runs_without_the_hooks_is_named():
    coder, x = offload_by_groups(Coder()), torch.rand(1, 3, 4, 4, device="cuda")
    found = explained(lambda: coder.decode(x))
    assert "hooks of `Coder` move tensors only in `forward`; `decode` ran without them" in found.notes
    assert [fix.summary for fix in found.fixes] == ["call the module itself: its hooks move its weights"]
    coder(x)


def test_a_method_that_runs_without_the_hook_of_model_offloading_is_named():
    accelerate = pytest.importorskip("accelerate")
    coder, _ = accelerate.cpu_offload_with_hook(Coder(), torch.device("cuda:0"))
    found = explained(lambda: coder.decode(torch.rand(1, 3, 4, 4, device="cuda")))
    assert "hooks of `Coder` move tensors only in `forward`; `decode` ran without them" in found.notes


def test_a_sigma_of_a_scheduler_that_stays_on_the_cpu_is_named():
    class Scheduler:
        def __init__(self):
            self.sigmas = torch.linspace(1, 0, 4)

        def step(self, sample):
            rks = [self.sigmas[1]]
            rks.append(torch.ones((), device=sample.device))
            return sample * torch.stack(rks).sum()

    scheduler = Scheduler()
    found = explained(lambda: scheduler.step(torch.rand(4, device="cuda")))
    assert found.kind == "wrong-device"
    assert "self.sigmas" in str(found)
