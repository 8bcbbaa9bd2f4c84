"""A half-precision batch meets a float32 convolution."""
import torch
from torch import nn

GPUS = 1
RUNS_ON_CPU = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image):
        return self.conv(image).mean((2, 3))  # FAULT


def build():
    model = Net().cuda()
    image = torch.rand(2, 3, 8, 8).cuda().half()  # BIRTH
    return dict(model=model, args=(image,), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-dtype', module='conv', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.float()', 'float32', 'autocast'], severity='error', fatal=True),
]
RAISES = r'Input type .* and (weight|bias) type|expected scalar type|should be the same'
