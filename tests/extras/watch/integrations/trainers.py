"""The same small training under three trainers, each with a place for a fault of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import devwidget

FEATURES, CLASSES, BATCH = 16, 4, 8
FaultAt = Callable[[int, torch.Tensor], object]
"""What goes wrong in a step, given its number and its loss."""


class Classifier(nn.Module):
    """Gives loss and logits, as models of transformers do; with dropout, whose numbers nobody may take.

    Replicas draw theirs from one generator, in threads, in an order that is another each time: they have none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1 if torch.cuda.device_count() < 2 else 0))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(self.body(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Points(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The same points each time."""

    def __init__(self, count: int = 64) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, FEATURES, generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": index % CLASSES}


def healthy(step: int, loss: torch.Tensor) -> None:
    pass


def watched_step(fault: FaultAt, losses: list[torch.Tensor], loss: torch.Tensor) -> None:
    fault(len(losses), loss)
    losses.append(loss.detach().clone())


def train_transformers(
    steps: int, callbacks: list[Any], folder: Path, fault: FaultAt = healthy, **options: Any
) -> list[torch.Tensor]:
    """Losses of a training under `transformers.Trainer`, and the parameters that it left."""
    transformers = pytest.importorskip("transformers")
    losses: list[torch.Tensor] = []

    class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined]
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            if self.model.training:
                watched_step(fault, losses, loss)
            return loss

    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=BATCH, logging_steps=20, save_strategy="no",
        disable_tqdm=True, dataloader_pin_memory=False, **({"report_to": []} | options),
    )  # fmt: skip
    model = Classifier()
    Trainer(model=model, args=arguments, train_dataset=Points(), eval_dataset=Points(8), callbacks=callbacks).train()
    return _bring_home([*losses, *model.parameters()])


def train_lightning(
    steps: int, callbacks: list[Any], folder: Path, fault: FaultAt = healthy, **options: Any
) -> list[torch.Tensor]:
    """Losses of a training under Lightning, and the parameters that it left."""
    lightning = pytest.importorskip("lightning.pytorch")
    losses: list[torch.Tensor] = []

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Classifier()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            loss = self.model(**batch)["loss"]
            watched_step(fault, losses, loss)
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
            self.log("loss of validation", self.model(**batch)["loss"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    torch.manual_seed(0)
    module = Module()
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=callbacks, default_root_dir=folder, log_every_n_steps=20, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, check_val_every_n_epoch=5,
        **({"accelerator": "gpu", "devices": 1, "logger": False} | options),
    )  # fmt: skip
    loaders = (torch.utils.data.DataLoader(Points(count), BATCH) for count in (64, BATCH))
    trainer.fit(module, *loaders)
    return _bring_home([*losses, *module.parameters()])


def train_accelerate(
    steps: int,
    watcher: Callable[[Any], contextlib.AbstractContextManager[Any]],
    folder: Path,
    fault: FaultAt = healthy,
    **options: Any,
) -> list[torch.Tensor]:
    """Losses of a loop with `accelerate`, and the parameters that it left."""
    accelerate = pytest.importorskip("accelerate")
    losses: list[torch.Tensor] = []
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(project_dir=str(folder), **options)
    if options.get("log_with"):
        accelerator.init_trackers("runs")
    model = Classifier()
    loader = torch.utils.data.DataLoader(Points(), BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader)
    batches = _repeat(loader)
    with watcher(accelerator):
        for _ in range(steps):
            loss = model(**next(batches))["loss"]
            watched_step(fault, losses, loss)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()
    return _bring_home([*losses, *model.parameters()])


@contextlib.contextmanager
def unwatched(accelerator: Any) -> Iterator[None]:
    yield


def _repeat(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _bring_home(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().cpu() for tensor in tensors]


@contextlib.contextmanager
def virtual_cards(gpus: int, memory: str = "256MiB") -> Iterator[None]:
    """Virtual GPUs, and nothing that accelerate keeps for a whole process."""
    state = pytest.importorskip("accelerate.state")
    try:
        with devwidget.simulate(gpus, memory=memory):
            yield
    finally:
        state.AcceleratorState._reset_state(reset_partial_state=True)


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard finds under a folder: name -> steps and values."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        loaded = events.EventAccumulator(str(file))
        loaded.Reload()
        for tag in loaded.Tags()["scalars"]:
            found.setdefault(tag, []).extend((each.step, each.value) for each in loaded.Scalars(tag))
    return found
