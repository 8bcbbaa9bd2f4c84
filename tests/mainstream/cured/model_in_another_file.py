import torch
from network_apart import Net

model = Net()
print(model(torch.tensor([[1, 2, 3]], device="cuda")).shape)
