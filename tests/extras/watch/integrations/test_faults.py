"""One fault in a training on two virtual GPUs: found with its line, told as a warning, and counted by the loggers."""

from __future__ import annotations

import linecache
import warnings

import pytest
import torch

import devwidget.integrations
from devwidget.integrations import FindingWarning, watch_accelerator
from tests.extras.watch.integrations.trainers import (
    read_scalars,
    train_accelerate,
    train_lightning,
    train_transformers,
    virtual_cards,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def warned(caught):
    """The lines of the user that warnings are about, and their words."""
    found = [each for each in caught if issubclass(each.category, FindingWarning)]
    return [(linecache.getline(each.filename, each.lineno).strip(), str(each.message)) for each in found]


@pytest.mark.slow
def test_values_that_are_kept_under_transformers(tmp_path):
    callback, kept = devwidget.integrations.TransformersCallback(), []

    def fault(step, loss):
        kept.append(loss.detach().mean() * torch.ones(65536, device="cuda"))

    with virtual_cards(2), pytest.warns(FindingWarning) as caught:
        train_transformers(180, [callback], tmp_path, fault, report_to=["tensorboard"])
    ((line, words),) = warned(caught)
    assert line == 'kept.append(loss.detach().mean() * torch.ones(65536, device="cuda"))'
    assert "warning[memory-growth] allocated memory of cuda:0 has grown by 256 KiB per step" in words
    assert callback.run.result.model == "DataParallel"
    scalars = read_scalars(tmp_path)
    assert [step for step, _ in scalars["train/devwidget/step_seconds"]] == list(range(20, 181, 20))
    assert scalars["train/devwidget/findings"][-1] == (180, 1.0)
    grown = [size for _, size in scalars["train/devwidget/cuda_0_allocated_bytes"]]
    assert grown == sorted(set(grown))
    assert "train/devwidget/cuda_1_peak_bytes" in scalars


@pytest.mark.slow
def test_a_value_that_is_read_later_under_lightning_on_the_second_gpu(tmp_path):
    pytest.importorskip("lightning")
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    callback = devwidget.integrations.LightningCallback(every=20)

    def fault(step, loss):
        if step >= 40:
            float(loss)

    with virtual_cards(2), pytest.warns(FindingWarning) as caught:
        train_lightning(
            120, [callback], tmp_path, fault, accelerator="gpu", devices=[1], logger=loggers.TensorBoardLogger(tmp_path)
        )
    ((line, words),) = warned(caught)
    assert line == "float(loss)"
    assert "warning[host-sync] `float(loss)` syncs with cuda:1, 1 time" in words
    scalars = read_scalars(tmp_path)
    assert [step for step, _ in scalars["devwidget/step_seconds"]] == [19, 39, 59, 79, 99, 119]
    assert scalars["devwidget/findings"][-1] == (119, 1.0)
    assert scalars["devwidget/cuda_1_allocated_bytes"][-1][1] > 0
    assert any(seconds for _, seconds in scalars["devwidget/evaluation_seconds"])
    assert all(seconds for _, seconds in scalars["devwidget/forward_seconds"])
    assert all(seconds for _, seconds in scalars["devwidget/backward_seconds"])


def test_a_value_that_is_read_later_under_accelerate(tmp_path):
    def fault(step, loss):
        if step >= 40:
            float(loss)

    with virtual_cards(2), pytest.warns(FindingWarning) as caught:
        train_accelerate(
            120, lambda each: watch_accelerator(each, every=20), tmp_path, fault, log_with="tensorboard",
        )  # fmt: skip
    ((line, words),) = warned(caught)
    assert line == "float(loss)"
    assert "warning[host-sync] `float(loss)` syncs with cuda:0, 1 time" in words
    assert words.startswith("in step 50: ")
    scalars = read_scalars(tmp_path)
    assert [step for step, _ in scalars["devwidget/step_seconds"]] == list(range(10, 121, 10))


def test_batches_cross_at_the_trainers_line_and_the_users(tmp_path):
    callback = devwidget.integrations.TransformersCallback()
    with virtual_cards(1):
        train_transformers(12, [callback], tmp_path)
    (site,) = {move.site for move in callback.run.recorded[10].moves}
    assert "train()" in site.text
    assert site.library.file.endswith("accelerate/utils/operations.py")
    assert str(site).startswith("trainers.py:")
    assert "(operations.py:" in str(site)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["transformers", "lightning", "accelerate"])
def test_what_ends_the_training_is_told_and_nothing_is_left_behind(trainer, tmp_path):
    def fault(step, loss):
        if step == 11:
            torch.empty(2**30, device="cuda")

    with virtual_cards(1), pytest.warns(FindingWarning) as caught, pytest.raises(torch.OutOfMemoryError):
        _train(trainer, tmp_path, fault)
    ((_, words),) = warned(caught)
    assert "in step 11: error[out-of-memory] the run ended in step 11" in words


@pytest.mark.parametrize("trainer", ["transformers", "lightning", "accelerate"])
def test_fail_on_ends_the_training_with_what_was_found(trainer, tmp_path):
    steps = []

    def fault(step, loss):
        steps.append(step)
        if step >= 15:
            loss.item()

    with virtual_cards(1), warnings.catch_warnings():
        warnings.simplefilter("error", FindingWarning)
        with pytest.raises(devwidget.PlacementError, match=r"loss.item\(\)") as caught:
            _train(trainer, tmp_path, fault, every=5, fail_on="warning")
    run = caught.value.run
    assert steps[-1] in (19, 20)  # at once, or when the next step has it too
    assert run.first_steps == (19,)


def _train(trainer, folder, fault, **options):
    if trainer == "transformers":
        return train_transformers(60, [devwidget.integrations.TransformersCallback(**options)], folder, fault)
    if trainer == "lightning":
        pytest.importorskip("lightning")
        return train_lightning(60, [devwidget.integrations.LightningCallback(**options)], folder, fault)
    return train_accelerate(60, lambda each: watch_accelerator(each, **options), folder, fault)
