"""A trainer keeps the hidden state between batches."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)
        self.out = nn.Linear(6, 4)

    def forward(self, x, state):
        h, c = self.cell(x, state)  # FAULT
        return self.out(h), (h, c)


class Trainer:
    def __init__(self, model, rows):
        self.model = model
        self.state = tuple(torch.zeros(rows, 6) for _ in range(2))  # BIRTH

    def batch(self):
        return torch.randn(3, 4, device='cuda:0'), self.state


def build():
    trainer = Trainer(Reader().to('cuda:0'), 3)
    return dict(model=trainer.model, args=trainer.batch(), loss_fn=lambda out, _: out[0].sum())


EXPECT = [
    dict(kind='wrong-device', module='cell', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True, module_alt=['']),
]
RAISES = r'RuntimeError: '
