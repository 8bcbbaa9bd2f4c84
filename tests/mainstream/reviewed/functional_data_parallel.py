import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("cuda:0")
out = nn.parallel.data_parallel(model, torch.rand(8, 4, device="cuda:0"), range(2))
out.sum().backward()
