import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.randn(30, 8).to(device), torch.randint(0, 3, (30,)).to(device)
mask = torch.rand(30) < 0.5
net = nn.Linear(8, 3).to(device)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(20):
    loss = nn.functional.cross_entropy(net(x)[mask], y[mask])
    opt.zero_grad()
    loss.backward()
    opt.step()
