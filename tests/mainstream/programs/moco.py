"""Momentum contrast: a queue of keys and a key encoder that follows the query encoder."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class MoCo(nn.Module):
    def __init__(self, base_encoder, dim=8, K=16, m=0.99, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = base_encoder
        self.encoder_k = copy.deepcopy(base_encoder)
        for param_k in self.encoder_k.parameters():
            param_k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))  #! unregistered-tensor: self.queue = F.normalize(torch.randn(dim, K), dim=0)
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))
        self.ptr = 0

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data = param_k.data * self.m + param_q.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        self.queue[:, self.ptr : self.ptr + keys.shape[0]] = keys.T
        self.ptr = (self.ptr + keys.shape[0]) % self.K
        self.queue_ptr.fill_(self.ptr)

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            idx_shuffle = torch.randperm(im_k.shape[0], device=im_k.device)
            k = F.normalize(self.encoder_k(im_k[idx_shuffle]), dim=1)[torch.argsort(idx_shuffle)]
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)  #! wrong-device: labels = torch.zeros(logits.shape[0], dtype=torch.long)
        self._dequeue_and_enqueue(k)
        return logits, labels


class TwoCropsTransform:
    def __call__(self, x):
        return [x + 0.1 * torch.randn_like(x), x.flip(-1)]


class ImageSet(torch.utils.data.Dataset):
    def __init__(self, transform):
        self.images, self.transform = torch.rand(16, 3, 8, 8), transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), index


def adjust_learning_rate(optimizer, epoch):
    for group in optimizer.param_groups:
        group["lr"] = 0.03 * 0.5**epoch


encoder = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8))
model = MoCo(encoder).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.03, momentum=0.9, weight_decay=1e-4)
train_loader = torch.utils.data.DataLoader(ImageSet(TwoCropsTransform()), batch_size=4, shuffle=True, drop_last=True)
for epoch in range(2):
    adjust_learning_rate(optimizer, epoch)
    for images, _ in train_loader:
        images = [image.cuda(non_blocking=True) for image in images]
        output, target = model(im_q=images[0], im_k=images[1])
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
