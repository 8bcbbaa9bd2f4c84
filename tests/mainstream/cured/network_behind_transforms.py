"""The first module that runs is a transform without parameters: the network that was left behind is no part of it."""
import torch
from torch import nn


class Crop(nn.Module):
    def forward(self, x):
        return x[..., :4]


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def forward(self, z):
        return self.layers(z)


crop = Crop()
real = crop(torch.rand(2, 6))
discriminator = nn.Linear(4, 1)
generator = Generator()
discriminator.cuda()
score = discriminator(real.cuda())
print(discriminator(generator(torch.randn(2, 3).cuda())).shape)
