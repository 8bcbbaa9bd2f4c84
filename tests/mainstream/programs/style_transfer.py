"""Neural style transfer in the style of PyTorch's tutorial: only the picture is trained."""

import torch
import torch.nn.functional as F
from torch import nn, optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_dtype(torch.float32)


def image_loader(seed):
    image = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return image.to(device, torch.float)


style_img = image_loader(1)
content_img = image_loader(2)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = mean.clone().detach().view(-1, 1, 1)
        self.std = std.clone().detach().view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


def get_style_model_and_losses(cnn, mean, std):
    content_losses, style_losses, i = [], [], 0
    model = nn.Sequential(Normalization(mean, std))
    for layer in cnn.children():
        i += isinstance(layer, nn.Conv2d)
        model.add_module(f"{type(layer).__name__}_{i}", nn.ReLU(inplace=False) if isinstance(layer, nn.ReLU) else layer)
        if isinstance(layer, nn.Conv2d):
            content_losses.append(ContentLoss(model(content_img).detach()))
            model.add_module(f"content_loss_{i}", content_losses[-1])
            style_losses.append(StyleLoss(model(style_img).detach()))
            model.add_module(f"style_loss_{i}", style_losses[-1])
    return model, style_losses, content_losses


cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()).to(device).eval()
cnn_normalization_mean = torch.tensor([0.485, 0.456, 0.406]).to(device)  #! unregistered-tensor: cnn_normalization_mean = torch.tensor([0.485, 0.456, 0.406])
cnn_normalization_std = torch.tensor([0.229, 0.224, 0.225]).to(device)
model, style_losses, content_losses = get_style_model_and_losses(cnn, cnn_normalization_mean, cnn_normalization_std)
input_img = content_img.clone()  #! wrong-device: input_img = torch.rand(content_img.shape)
input_img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img], max_iter=4)
for _ in range(2):

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        loss = 1000 * sum(sl.loss for sl in style_losses) + sum(cl.loss for cl in content_losses)
        loss.backward()
        return loss

    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
print(input_img.cpu().mean())
