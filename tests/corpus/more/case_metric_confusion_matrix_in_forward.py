"""A confusion matrix kept by a metric object of the model is updated on the GPU."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes)  # BIRTH

    def update(self, pred, target):
        self.matrix += F.one_hot(pred, 2).T.float() @ F.one_hot(target, 2).float()  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 2)
        self.metric = Confusion(2)

    def forward(self, x, y):
        out = self.read(x)
        self.metric.update(out.argmax(-1), y)
        return F.cross_entropy(out, y)


def build():
    y = torch.tensor([0, 1, 0]).cuda()
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(), y), backward=True)


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
