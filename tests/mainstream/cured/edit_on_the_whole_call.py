import torch
from torch import nn
class Conv(nn.Module):
    def forward(self, x, edges):
        index = edges[0]
        return x.index_select(0, index)
device = "cuda" if torch.cuda.is_available() else "cpu"
conv, x, edges = Conv(), torch.ones(4, 2, device=device), torch.ones(2, 3, dtype=torch.long, device=device)
out = conv(x, edges.cpu())
print(out.shape)
