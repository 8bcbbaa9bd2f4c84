import torch
from torch import nn

backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda().eval()
for parameter in backbone.parameters():
    parameter.requires_grad = False
head = nn.Linear(4, 2).cuda()  #! wrong-device: head = nn.Linear(4, 2)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(2):
    images = torch.rand(4, 3, 8, 8).cuda()
    labels = torch.randint(0, 2, (4,)).cuda()  #! wrong-device: labels = torch.randint(0, 2, (4,))
    with torch.no_grad():
        features = backbone(images)
    loss = nn.functional.cross_entropy(head(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
