import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(96, 3, 128, 128))
loader = DataLoader(data, batch_size=32)
model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.Flatten(), nn.Linear(4096, 2)).to("cuda:0")
for (x,) in loader:
    model(x.to("cuda:0")).sum().backward()
