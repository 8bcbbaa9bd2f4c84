"""A message passing layer adds its messages into a fresh tensor of the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Conv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)

    def propagate(self, edge_index, x, size):
        src, dst = edge_index
        messages = x[src]
        out = torch.zeros(size, x.shape[1])  # BIRTH
        out.index_add_(0, dst, messages)  # FAULT
        return out

    def forward(self, x, edge_index):
        return self.propagate(edge_index, self.lin(x), x.size(0))


class Gnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = Conv(3, 8)
        self.conv2 = Conv(8, 2)

    def forward(self, x, edge_index):
        return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)


def build():
    model = Gnn().to('cuda:0')
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]], device='cuda:0')
    return dict(model=model, args=(torch.randn(4, 3, device='cuda:0'), edges), loss_fn=F.cross_entropy,
                target=torch.tensor([0, 1, 1, 0], device='cuda:0'))


EXPECT = [
    dict(kind='wrong-device', module='conv1', also_modules=['conv2'], fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=x.device', 'device=messages.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
