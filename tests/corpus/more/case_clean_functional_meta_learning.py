"""MAML: an inner step with functional_call on the GPU."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 6)
        self.b = nn.Linear(6, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Maml(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Inner()

    def forward(self, x, y):
        fast = dict(self.net.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(self.net, fast, (x,)), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads)}
        return torch.func.functional_call(self.net, fast, (x,))


def build():
    model = Maml().cuda()
    y = torch.tensor([0, 1, 0]).cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(), y), target=y, loss_fn=nn.CrossEntropyLoss(),
                optimizer=torch.optim.Adam(model.parameters()))


EXPECT = []
RAISES = None
