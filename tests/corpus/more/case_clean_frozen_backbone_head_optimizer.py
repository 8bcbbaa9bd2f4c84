"""Clean: only the head is optimised, the backbone is frozen; Adam was built before the move."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 2)
        self.backbone.requires_grad_(False)

    def forward(self, image):
        with torch.no_grad():
            feats = self.backbone(image)
        return self.head(feats)


def build():
    model = Net()
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    model.cuda()
    return dict(model=model, args=(torch.rand(2, 3, 8, 8).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1]).cuda(), optimizer=opt)


EXPECT = []
RAISES = None
