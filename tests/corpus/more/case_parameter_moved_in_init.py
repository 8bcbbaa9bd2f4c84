"""`nn.Parameter(...).cuda()` in `__init__` leaves a plain non-leaf tensor: model.parameters() does not know it."""
import torch
from torch import nn

GPUS = 1


class Prompted(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(torch.zeros(4)).cuda()  # BIRTH
        self.net = nn.Linear(4, 2)

    def forward(self, x):
        return self.net(x + self.prompt)  # FAULT


def build():
    model = Prompted().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1, 0]).cuda(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


EXPECT = [
    dict(kind='non-leaf-grad', module='', module_alt=[None], fault_line=None, birth_line='# BIRTH',
         fix_contains=["device='cuda", 'nn.Parameter(', 'detach()'], severity='error', fatal=False),
]
RAISES = None
