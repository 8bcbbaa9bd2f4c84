"""Clean: hooks that scale gradients where they are, log them, and return nothing."""
import torch
from torch import nn

GPUS = 1
NORMS = []


def halve(grad):
    return grad * 0.5


def log(module, grad_input, grad_output):
    NORMS.append(grad_output[0].detach().norm())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 6)
        self.b = nn.Linear(6, 2)
        self.a.weight.register_hook(halve)
        self.b.register_full_backward_hook(log)

    def forward(self, x):
        hidden = self.a(x)
        if hidden.requires_grad:
            hidden.register_hook(halve)
            hidden.register_hook(lambda grad: NORMS.append(grad.cpu()))
        return self.b(hidden.relu())


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1, 0]).cuda(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), steps=2)


EXPECT = []
RAISES = None
