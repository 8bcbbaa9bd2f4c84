import torch
from torch import nn

picture = torch.rand(1, 3, 16, 16, device="cuda").requires_grad_(True)
optimizer = torch.optim.Adam([picture])
features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to("cuda").eval()

for _ in range(2):
    loss = features(picture).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
