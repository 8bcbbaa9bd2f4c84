"""Per-sample gradients with vmap(grad(functional_call))."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

from torch.func import functional_call, grad, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 2)

    def forward(self, x):
        return self.read(x)


def build():
    model = Net().cuda()
    y = torch.tensor([0, 1, 0]).cuda()
    x = torch.randn(3, 4).cuda()

    def loss_fn(out, y):
        params = {k: v.detach() for k, v in model.named_parameters()}

        def one(params, x, y):
            return F.cross_entropy(functional_call(model, params, (x[None],)), y[None])

        norms = vmap(grad(one), (None, 0, 0))(params, x, y)['read.weight'].flatten(1).norm(dim=1)
        return (F.cross_entropy(out, y, reduction='none') / norms).mean()

    return dict(model=model, args=(x,), target=y, loss_fn=loss_fn, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


EXPECT = []
RAISES = None
