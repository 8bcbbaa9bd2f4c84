"""Clean: a helper reads values after backward and after a step in evaluation mode, with recomputation by a checkpoint."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

GPUS = 1
LOG = []


def accuracy(out, target):
    return (out.argmax(-1) == target).float().mean().item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False))


def build():
    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 4).cuda(), torch.randint(0, 3, (5,)).cuda()
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    opt.step()
    LOG.append(accuracy(out, y))
    model.eval()
    with torch.no_grad():
        LOG.append(accuracy(model(x), y))
    model.train()
    return dict(model=model, args=(x,), target=y, loss_fn=F.cross_entropy, optimizer=opt, steps=2)


EXPECT = []
RAISES = None
