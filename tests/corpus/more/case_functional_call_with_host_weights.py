"""torch.func.functional_call is given parameters that stayed on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x):
        return self.lin(x)  # FAULT


class Meta(nn.Module):
    def __init__(self, fast):
        super().__init__()
        self.inner = Inner()
        self.fast = fast  # BIRTH-1

    def forward(self, x):
        return torch.func.functional_call(self.inner, self.fast, (x,))  # OUT


def build():
    fast = {'lin.weight': torch.randn(2, 4), 'lin.bias': torch.zeros(2)}  # BIRTH-2
    return dict(model=Meta(fast).cuda(), args=(torch.randn(3, 4).cuda(),))


EXPECT = [
    dict(kind='unregistered-tensor', module='inner.lin', module_alt=['inner', ''], fault_line='# FAULT', birth_line='# BIRTH-1', birth_alt=['# BIRTH-2'],
         fix_contains=['register_buffer', 'ParameterDict', 'Parameter', "device='cuda:0'"], severity='error', fatal=True),
]
RAISES = r'RuntimeError: .*'
