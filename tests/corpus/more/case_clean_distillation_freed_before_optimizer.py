"""Clean: everything is frozen first, and freed layer by layer before the optimizer is built; a teacher stays frozen."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Distilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
        self.teacher = nn.Linear(4, 2)

    def forward(self, x):
        return self.student(x), self.teacher(x)


def build():
    model = Distilled().cuda()
    for p in model.parameters():
        p.requires_grad = False
    for layer in reversed(model.student):
        layer.requires_grad_()
    opt = torch.optim.SGD(model.student.parameters(), lr=0.1)
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), optimizer=opt, steps=2,
                loss_fn=lambda out, _: F.kl_div(out[0].log_softmax(-1), out[1].softmax(-1), reduction='batchmean'))


EXPECT = []
RAISES = None
