"""A U-Net for masks with a Dataset class and a Dice loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class CarvanaDataset(Dataset):
    def __init__(self, number=12, size=16):
        self.images = torch.rand(number, 3, size, size)  #^
        self.masks = (self.images.mean(1) > 0.5).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index], "mask": self.masks[index]}


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, widths=(4, 8, 16)):
        super().__init__()
        self.inc = DoubleConv(n_channels, widths[0])
        pairs = list(zip(widths, widths[1:]))
        self.downs = nn.ModuleList([DoubleConv(low, high) for low, high in pairs])  #! unregistered-tensor: self.downs = [DoubleConv(low, high) for low, high in pairs]
        self.ups = nn.ModuleList([nn.ConvTranspose2d(high, low, 2, stride=2) for low, high in reversed(pairs)])
        self.convs = nn.ModuleList([DoubleConv(2 * low, low) for low, _ in reversed(pairs)])
        self.outc = nn.Conv2d(widths[0], n_classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, conv in zip(self.ups, self.convs):
            x = conv(torch.cat([skips.pop(), up(x)], dim=1))
        return self.outc(x)


def dice_loss(logits, masks, epsilon=1e-6):
    probs = F.softmax(logits, dim=1).float()
    onehot = F.one_hot(masks, logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = 2 * (probs * onehot).sum(dim=(-1, -2))
    sets_sum = probs.sum(dim=(-1, -2)) + onehot.sum(dim=(-1, -2))
    return 1 - ((inter + epsilon) / (sets_sum + epsilon)).mean()


@torch.inference_mode()
def evaluate(net, dataloader, device):
    net.eval()
    score = 0
    for batch in dataloader:
        image, mask_true = batch["image"].to(device), batch["mask"].to(device)
        score += 1 - dice_loss(net(image), mask_true)
    net.train()
    return score / max(len(dataloader), 1)


def train_model(model, device, epochs=2, batch_size=4):
    dataset = CarvanaDataset()
    train_set, val_set = random_split(dataset, [8, 4], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, batch_size=batch_size)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        model.train()
        for batch in train_loader:
            images, true_masks = batch["image"], batch["mask"]
            images = images.to(device=device, dtype=torch.float32)
            true_masks = true_masks.to(device=device, dtype=torch.long)  #! wrong-device: true_masks = true_masks.to(dtype=torch.long)
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks) + dice_loss(masks_pred, true_masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step(evaluate(model, val_loader, device))


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = UNet(n_channels=3, n_classes=2)
    model.to(device=device)
    train_model(model, device)
