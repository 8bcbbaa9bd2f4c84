import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


policy = Net().to("cuda")
target = Net()
target.load_state_dict(policy.state_dict())
ours, theirs = policy.state_dict(), target.state_dict()
for key in ours:
    theirs[key] = ours[key] * 0.1 + theirs[key] * 0.9
target.load_state_dict(theirs)
print(target(torch.rand(3, 4, device="cuda")).shape)
