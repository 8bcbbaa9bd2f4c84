import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 8), nn.Linear(4, 8)
        self.register_buffer("scale", torch.full((4,), 0.5))  #! unregistered-tensor: self.scale = torch.full((4,), 0.5)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, -1)
        noise = torch.randn(mean.shape, device=mean.device)  #! wrong-device: noise = torch.randn(mean.shape)
        return self.decode(mean + noise * self.scale * (log_variance / 2).exp()), mean


model = VAE().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    x = torch.rand(6, 8).to("cuda")
    out, mean = model(x)
    loss = nn.functional.mse_loss(out, x) + mean.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
