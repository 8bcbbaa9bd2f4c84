"""Saliency: gradients of a leaf input, and retain_grad on an activation."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

KEPT = {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 6)
        self.b = nn.Linear(6, 2)

    def forward(self, x):
        h = self.a(x)
        if h.requires_grad:
            h.retain_grad()
        KEPT['h'] = h
        return self.b(h.relu())


def build():
    model = Net().cuda()
    x = torch.randn(3, 4).cuda().requires_grad_()

    def loss_fn(out, y):
        loss = F.cross_entropy(out, y)
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        loss.backward(retain_graph=True)
        assert x.grad is not None and KEPT['h'].grad is not None
        return loss + g.pow(2).sum()

    return dict(model=model, args=(x,), target=torch.tensor([0, 1, 0]).cuda(), loss_fn=loss_fn)


EXPECT = []
RAISES = None
