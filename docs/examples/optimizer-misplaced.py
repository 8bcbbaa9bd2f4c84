import torch
from torch import nn

model = nn.Linear(8, 2)
optimizer = torch.optim.Adagrad(model.parameters())
model.cuda()

model(torch.randn(4, 8, device="cuda:0")).sum().backward()
optimizer.step()
