import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 1).to(device)
opt = torch.optim.SGD(net.parameters(), 0.1)
x, total = torch.ones(8, 4, device=device), 0.0
for step in range(20):
    loss = net(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    total += loss.item()
    print(loss)
