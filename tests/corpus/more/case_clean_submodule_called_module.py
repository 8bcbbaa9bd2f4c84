"""Clean: a partial checkpoint for another head, strict=False, and a child that is named `module`."""
import torch
from torch import nn

GPUS = 1


class Wrap(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.module = nn.Linear(4, 4)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.module(x))


def build():
    old, model = Wrap(7), Wrap(3)
    state = {k: v for k, v in old.state_dict().items() if not k.startswith('head')}
    model.load_state_dict(state, strict=False)
    model.cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = []
RAISES = None
