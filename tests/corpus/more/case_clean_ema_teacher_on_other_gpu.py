"""Clean: an EMA copy of the student lives on a second GPU; its prediction crosses once."""
import copy

import torch
from torch import nn

GPUS = 2


class Distilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to('cuda:0')
        self.teacher = copy.deepcopy(self.student).to('cuda:1').requires_grad_(False)

    @torch.no_grad()
    def follow(self, rate=0.9):
        for mean, value in zip(self.teacher.parameters(), self.student.parameters()):
            mean.mul_(rate).add_(value.to(mean.device), alpha=1 - rate)

    def forward(self, x):
        guess = self.student(x)
        with torch.no_grad():
            wish = self.teacher(x.to('cuda:1')).to('cuda:0')
        self.follow()
        return guess, wish


def build():
    model = Distilled()
    opt = torch.optim.AdamW(model.student.parameters())
    return dict(model=model, args=(torch.randn(4, 6, device='cuda:0'),), optimizer=opt, steps=2,
                loss_fn=lambda pair, _: nn.functional.mse_loss(*pair))


EXPECT = []
RAISES = None
