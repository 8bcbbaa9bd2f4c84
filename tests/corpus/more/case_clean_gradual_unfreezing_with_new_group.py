"""A backbone is unfrozen and added to the optimizer as a group."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


def build():
    model = Net().cuda()
    model.body.requires_grad_(False)
    opt = torch.optim.SGD(model.head.parameters(), lr=0.1)
    model.body.requires_grad_(True)
    opt.add_param_group({'params': model.body.parameters(), 'lr': 0.01})
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0]).cuda(),
                loss_fn=nn.CrossEntropyLoss(), optimizer=opt)


EXPECT = []
RAISES = None
