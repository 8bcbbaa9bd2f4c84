"""Trains and runs the detector."""

import torch
from model import Detector


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        corner = torch.rand(2, 2) * 4
        boxes = torch.cat([corner, corner + 1 + torch.rand(2, 2) * 3], dim=1)
        return torch.rand(3, 8, 8), {"boxes": boxes, "labels": torch.randint(0, 3, (2,)), "image_id": torch.tensor([index])}


def collate_fn(batch):
    return tuple(zip(*batch))


def train_one_epoch(model, optimizer, data_loader, device):
    model.train()
    for images, targets in data_loader:
        images = [image.to(device) for image in images]
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()


@torch.inference_mode()
def evaluate(model, data_loader, device):
    model.eval()
    results = {}
    for images, targets in data_loader:
        outputs = model([image.to(device) for image in images])
        outputs = [{k: v.to("cpu") for k, v in t.items()} for t in outputs]
        results.update({target["image_id"].item(): output for target, output in zip(targets, outputs)})
    return results


device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
data_loader = torch.utils.data.DataLoader(Boxes(), batch_size=2, shuffle=True, collate_fn=collate_fn)
model = Detector().to(device)
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9, weight_decay=0.0005)
lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
for _ in range(2):
    train_one_epoch(model, optimizer, data_loader, device)
    lr_scheduler.step()
print(len(evaluate(model, data_loader, device)))
