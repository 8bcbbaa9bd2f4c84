import torch
from torch import nn

model = nn.Linear(8, 1).to("cuda:0")
x, y = torch.randn(4, 8, device="cuda:0"), torch.randn(4, 1, device="cuda:0")


class Clipped(nn.Module):
    def forward(self, found, wanted):
        loss = (found - wanted).square().mean()
        if loss.item() > 1:
            loss = loss.sqrt()
        return loss


Clipped()(model(x), y).backward()
