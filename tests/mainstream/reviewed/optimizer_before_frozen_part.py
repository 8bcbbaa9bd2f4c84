import torch
from torch import nn

head = nn.Linear(8, 2).to("cuda")
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
backbone = nn.Linear(4, 8).to("cuda")

loss = head(backbone(torch.rand(3, 4, device="cuda"))).sum()
loss.backward()
optimizer.step()
