"""A denoising diffusion loop with an exponential moving average, in the style of the annotated one."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
timesteps = 8


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        embeddings = torch.exp(torch.arange(half, device=time.device) * -(math.log(10000) / (half - 1)))  #! wrong-device: embeddings = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPositionEmbeddings(channels), nn.Linear(channels, channels), nn.GELU())
        self.entry, self.exit = nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x, time):
        return self.exit(F.silu(self.entry(x) + self.time_mlp(time)[:, :, None, None]))


class EMA:
    def __init__(self, beta):
        self.beta = beta

    @torch.no_grad()
    def step(self, ema_model, model):
        for ema_param, param in zip(ema_model.parameters(), model.parameters()):
            ema_param.lerp_(param, 1 - self.beta)


betas = torch.linspace(0.0001, 0.02, timesteps)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
sqrt_recip_alphas = torch.sqrt(1.0 / alphas)
sqrt_alphas_cumprod = torch.sqrt(alphas_cumprod)
sqrt_one_minus_alphas_cumprod = torch.sqrt(1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    out = a.to(t.device).gather(-1, t)
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def p_losses(model, x_start, t):
    noise = torch.randn_like(x_start)
    x_noisy = extract(sqrt_alphas_cumprod, t, x_start.shape) * x_start + extract(sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
    return F.smooth_l1_loss(model(x_noisy, t), noise)


@torch.no_grad()
def sample(model, shape):
    img = torch.randn(shape, device=device)
    for i in reversed(range(timesteps)):
        t = torch.full((shape[0],), i, device=device, dtype=torch.long)
        mean = extract(sqrt_recip_alphas, t, shape) * (
            img - extract(betas, t, shape) * model(img, t) / extract(sqrt_one_minus_alphas_cumprod, t, shape)
        )
        img = mean + torch.sqrt(extract(betas, t, shape)) * torch.randn_like(img) if i else mean
    return img.cpu()


model = Denoiser()
ema_model = copy.deepcopy(model).eval().requires_grad_(False).to(device)  #! wrong-device: ema_model = copy.deepcopy(model).eval().requires_grad_(False)
model.to(device)
ema, optimizer = EMA(0.995), torch.optim.Adam(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.rand(8, 1, 8, 8), batch_size=4, shuffle=True)
for epoch in range(2):
    for batch in loader:
        batch = batch.to(device) * 2 - 1
        t = torch.randint(0, timesteps, (batch.shape[0],), device=device).long()
        loss = p_losses(model, batch, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(ema_model, model)
print(sample(ema_model, (2, 1, 8, 8)).shape)
