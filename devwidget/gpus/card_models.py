"""The cards that have a name: their memory, and where its figures were read."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.errors import SimulationError, nearest
from devwidget.records.schema.message import Message


@dataclass(frozen=True, slots=True)
class CardModel:
    """One kind of card.

    Attributes:
        name: as a user writes it.
        gib: memory that a program finds, in GiB, as errors print it.
        context_gib: of it, what CUDA's context and kernels take, in GiB.
        capability: the compute capability.
        source: where both figures were read.
    """

    name: str
    gib: float
    context_gib: float
    capability: tuple[int, int]
    source: str

    @property
    def memory_bytes(self) -> int:
        """What a program finds."""
        return int(self.gib * 2**30)

    @property
    def context_bytes(self) -> int:
        """What is gone before the first tensor."""
        return int(self.context_gib * 2**30)

    @property
    def workspace_bytes(self) -> int:
        """What cuBLAS keeps for each handle and stream. Source: `CUDABlas.cpp`, `parseChosenWorkspaceSize`; pytorch#95668."""
        if self.capability[0] >= 9:  # Hopper
            return 4096 * 8 * 1024
        return (4096 * 2 + 16 * 8) * 1024


CARDS = {
    card.name.lower().replace(" ", ""): card
    for card in (
        CardModel("T4", 14.75, 0.13, (7, 5), "GenerateU#10, Open-Sora#697, SA-ConvLSTM-Pytorch#22"),
        CardModel("V100-16GB", 15.78, 1.31, (7, 0), "transformers, model_memory_anatomy"),
        CardModel("V100-32GB", 31.74, 1.11, (7, 0), "ChatGLM-Finetuning#73"),
        CardModel("A10", 21.99, 0.22, (8, 6), "CogVLM#236"),
        CardModel("A10G", 22.19, 0.27, (8, 6), "torchtune#229"),
        CardModel("A100-40GB", 39.50, 0.49, (8, 0), "CoSeR#10"),
        CardModel("A100-80GB", 79.25, 0.45, (8, 0), "VAREdit#6, Keye#11"),
        CardModel("H100-80GB", 79.11, 0.67, (9, 0), "AReaL, and a write-up of CS336, memory_profiles, xl at 2048"),
        CardModel("L40", 44.40, 0.50, (8, 9), "Eagle#68"),
        CardModel("RTX 4090", 23.64, 0.49, (8, 9), "Phidias-Diffusion#8"),
        CardModel("RTX 5090", 31.37, 0.58, (12, 0), "Wan2.1#465"),
        CardModel("RTX 6000 Ada", 44.43, 0.42, (8, 9), "MTVCrafter#21"),
    )
}


def find_card(name: object) -> CardModel:
    """Return the card of a name; case and spaces do not count."""
    card = CARDS.get(str(name).lower().replace(" ", ""))
    if card is None:
        names = [card.name for card in CARDS.values()]
        raise SimulationError(
            Message("unknown card {name}{hint}", name=repr(name), hint=nearest(str(name), names)),
            why=Message("known are {known}", known=", ".join(names)),
            instead=Message('devwidget.simulate(card="A100-80GB"), or memory="79GiB" for another'),
        )
    return card
