"""A backbone is unfrozen after the optimizer was built of what was trainable then."""
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
    for p in model.body.parameters():
        p.requires_grad = False
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])  # BIRTH
    for p in model.body.parameters():
        p.requires_grad = True
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0]).cuda(),
                loss_fn=nn.CrossEntropyLoss(), optimizer=opt)


EXPECT = [
    dict(kind='optimizer-misplaced', module=None, fault_line=None, birth_line='# BIRTH',
         fix_contains=['add_param_group', 'after'], severity='error', fatal=False),
]
RAISES = None
