"""The normalisation constants are class attributes."""
import torch
from torch import nn

GPUS = 1


class Normalise(nn.Module):
    MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)  # BIRTH

    def forward(self, image):
        return image - self.MEAN  # FAULT


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(Normalise(), nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.rand(2, 3, 8, 8).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unregistered-tensor', module='0', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to(image.device)'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
