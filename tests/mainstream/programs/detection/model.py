"""A detector with one level of anchors, which takes images and a list of target dicts, as torchvision's do."""

import torch
from torch import nn
from torch.nn import functional as F


class AnchorGenerator(nn.Module):
    def __init__(self, sizes=(2.0, 4.0)):
        super().__init__()
        base = torch.tensor([[-size, -size, size, size] for size in sizes]) / 2  #^
        self.register_buffer("cell_anchors", base)  #! unregistered-tensor: self.cell_anchors = base

    def forward(self, features):
        height, width = features.shape[-2:]
        shift_y, shift_x = torch.meshgrid(
            torch.arange(height, device=features.device),
            torch.arange(width, device=features.device),  #! wrong-device: torch.arange(width),
            indexing="ij",
        )
        shifts = torch.stack([shift_x, shift_y, shift_x, shift_y], dim=-1).reshape(-1, 1, 4)
        return (shifts + self.cell_anchors).reshape(-1, 4)


def box_iou(one, other):
    low, high = torch.max(one[:, None, :2], other[:, :2]), torch.min(one[:, None, 2:], other[:, 2:])
    inner = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (one, other)]
    return inner / (areas[0][:, None] + areas[1] - inner)


class Detector(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.anchors = AnchorGenerator()
        self.cls_logits, self.bbox_pred = nn.Conv2d(8, 2 * num_classes, 1), nn.Conv2d(8, 2 * 4, 1)
        self.num_classes = num_classes

    def forward(self, images, targets=None):
        features = self.backbone(torch.stack(images))
        logits = self.cls_logits(features).permute(0, 2, 3, 1).reshape(len(images), -1, self.num_classes)
        deltas = self.bbox_pred(features).permute(0, 2, 3, 1).reshape(len(images), -1, 4)
        anchors = self.anchors(features)
        if not self.training:
            scores, labels = logits.softmax(-1).max(-1)
            return [{"boxes": anchors + d, "labels": l, "scores": s} for d, l, s in zip(deltas, labels, scores)]
        losses = {"classification": 0.0, "bbox_regression": 0.0}
        for logit, delta, target in zip(logits, deltas, targets):
            matched = box_iou(anchors, target["boxes"]).argmax(1)
            losses["classification"] += F.cross_entropy(logit, target["labels"][matched])
            losses["bbox_regression"] += F.smooth_l1_loss(delta, target["boxes"][matched] - anchors)
        return losses
