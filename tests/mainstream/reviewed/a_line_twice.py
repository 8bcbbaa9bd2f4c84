import torch
from torch import nn

model = nn.Linear(4, 2).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.rand(8, 4).to("cuda")
    model(x).sum().backward()
    optimizer.step()
