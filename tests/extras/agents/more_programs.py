"""Programs with a bug, for the edits of `test_more_edits.py`."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attn(nn.Module):
    def __init__(self, d=16, n=8):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.drop = nn.Dropout(0.1)
        self.causal = torch.tril(torch.ones(n, n)) == 0

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.causal[: x.shape[1], : x.shape[1]], -1e9)
        return self.out(self.drop(scores.softmax(-1)) @ v)


def make_attn():
    torch.manual_seed(0)
    model = Attn().to("cuda:0")
    return {
        "model": model,
        "batch": torch.randn(2, 8, 16, device="cuda:0"),
        "loss_fn": lambda o: o.pow(2).mean(),
        "optimizer": torch.optim.AdamW(model.parameters()),
    }


class Net2(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
        )

    def forward(self, x):
        return self.body(x)


def smooth_loss(out, target):
    smooth = torch.full((len(target), 5), 0.02)
    smooth.scatter_(1, target[:, None], 0.92)
    return -(smooth * out.log_softmax(-1)).sum(-1).mean()


def make_smooth():
    torch.manual_seed(0)
    model = Net2().to("cuda:0")
    return {
        "model": model,
        "batch": torch.randn(4, 3, 8, 8, device="cuda:0"),
        "target": torch.tensor([0, 1, 2, 3], device="cuda:0"),
        "loss_fn": smooth_loss,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
    }


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, -1)
        noise = torch.randn(mean.shape)
        return self.dec(mean + noise * (logvar / 2).exp())


def make_vae():
    return {"model": Vae().to("cuda:0"), "batch": torch.randn(4, 8, device="cuda:0"), "loss_fn": lambda o: o.pow(2).mean()}


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]


def make_packed():
    return {
        "model": Packed().to("cuda:0"),
        "batch": (torch.randn(3, 5, 4, device="cuda:0"), torch.tensor([5, 3, 2], device="cuda:0")),
        "loss_fn": torch.sum,
    }


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4).to("cuda:0")
        self.b = nn.Linear(4, 4).to("cuda:1")
        self.c = nn.Linear(4, 2).to("cuda:1")

    def forward(self, x):
        h = self.a(x)
        y = self.b(h.to("cuda:1"))
        return self.c(y + h)


def make_skip():
    return {"model": Skip(), "batch": torch.randn(2, 4, device="cuda:0"), "loss_fn": torch.sum}


class Logged(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.history = []

    def forward(self, x):
        out = self.layer(x)
        self.history.append(out.norm().item())
        return out


def make_logged():
    return {"model": Logged().to("cuda:0"), "batch": torch.randn(2, 4, device="cuda:0"), "loss_fn": torch.sum}


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        bias = torch.linspace(0, 1, 4, device=x.device)
        return F.linear(self.norm(x), self.layer.weight, bias)


def make_half():
    return {
        "model": Half().to("cuda:0").bfloat16(),
        "batch": torch.randn(2, 4, device="cuda:0", dtype=torch.bfloat16),
        "loss_fn": torch.sum,
    }


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)}

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([self.heads["a"](h), self.heads["b"](h)], -1)


def make_heads():
    m = Heads().to("cuda:0")
    return {
        "model": m,
        "batch": torch.randn(2, 4, device="cuda:0"),
        "loss_fn": torch.sum,
        "optimizer": torch.optim.Adam(m.parameters()),
    }


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, ids, lengths):
        h = self.emb(ids)
        steps = torch.arange(ids.shape[1])
        valid = steps[None, :] < lengths[:, None]
        h = (h * valid[..., None]).sum(1) / lengths[:, None]
        return self.out(h)


def make_tagger():
    return {
        "model": Tagger().to("cuda:0"),
        "batch": {"ids": torch.randint(10, (2, 5), device="cuda:0"), "lengths": torch.tensor([5, 2], device="cuda:0")},
        "loss_fn": F.cross_entropy,
        "target": torch.tensor([0, 2], device="cuda:0"),
    }


def make_dp():
    model = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).to("cuda:0"), [0, 1])
    target = torch.tensor([0, 1, 2, 0], device="cuda:1")
    return {"model": model, "batch": torch.randn(4, 4, device="cuda:0"), "loss_fn": F.cross_entropy, "target": target}


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor.to(x.device)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class Fn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return Scale.apply(self.layer(x), torch.full((4,), 3.0))


def make_fn():
    return {"model": Fn().to("cuda:0"), "batch": torch.randn(2, 4, device="cuda:0"), "loss_fn": torch.sum}


class Beam(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 9)

    @torch.no_grad()
    def forward(self, x):
        scores = self.out(x).log_softmax(-1)
        best = scores.topk(2).indices.cpu()
        return scores.gather(1, best)


def make_beam():
    return {"model": Beam().to("cuda:0").eval(), "batch": torch.randn(2, 4, device="cuda:0")}


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.ff = (
            nn.LayerNorm(d),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * d, d)),
        )

    def forward(self, x, keep=None):
        y = self.ff(self.norm(x))
        if keep is not None:
            y = y * keep
        return x + y


class Deep(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

    def forward(self, x):
        for at, block in enumerate(self.blocks):
            keep = torch.tensor([1.0, 0.5, 0.25])[at : at + 1]
            x = block(x, keep)
        return x


class Memory(nn.Module):
    """state across steps"""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.state = None

    def forward(self, x):
        if self.state is None:
            self.state = torch.zeros(len(x), 4)
        self.state = self.cell(x, self.state.detach())
        return self.state


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(6, 4)

    def forward(self, a, b):
        za, zb = F.normalize(self.enc(a), dim=-1), F.normalize(self.enc(b), dim=-1)
        logits = za @ zb.T
        labels = torch.arange(len(a))
        return F.cross_entropy(logits, labels)


class BN(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = self.bn(x)
        noise_scale = torch.tensor([0.1])
        return self.fc(x * noise_scale)


class Chunked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        out = torch.empty(len(x), 4)
        for at in range(0, len(x), 2):
            out[at : at + 2] = self.fc(x[at : at + 2])
        return out.to(x.device)


class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.float16):
            w = torch.matmul(self.q(x), self.k(x).T)
            bank = torch.zeros(len(x), len(x), device=x.device)
            bank[:] = w
            bank = torch.scatter_add(bank, 0, torch.zeros_like(bank, dtype=torch.long), w)
        return bank  # noqa: RET504


def deep():
    m = Deep().to("cuda:0")
    return {
        "model": m,
        "batch": torch.randn(3, 8, device="cuda:0"),
        "loss_fn": lambda o: o.pow(2).mean(),
        "optimizer": torch.optim.AdamW(m.parameters()),
    }


def mem():
    m = Memory().to("cuda:0")
    return {"model": m, "batch": torch.randn(3, 4, device="cuda:0"), "loss_fn": torch.sum}


def con():
    return {
        "model": Contrast().to("cuda:0"),
        "batch": (torch.randn(3, 6, device="cuda:0"), torch.randn(3, 6, device="cuda:0")),
        "loss_fn": lambda o: o,
    }


def bn():
    return {"model": BN().to("cuda:0"), "batch": torch.randn(6, 4, device="cuda:0"), "loss_fn": lambda o: o.pow(2).sum()}


def chk():
    return {"model": Chunked().to("cuda:0"), "batch": torch.randn(200, 4, device="cuda:0"), "loss_fn": torch.sum}


def au():
    return {"model": Auto().to("cuda:0"), "batch": torch.randn(3, 4, device="cuda:0"), "loss_fn": torch.sum}


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layer(x, src_mask=mask)


def enc():
    m = Enc().to("cuda:0")
    return {
        "model": m,
        "batch": torch.randn(2, 5, 8, device="cuda:0"),
        "loss_fn": lambda o: o.pow(2).mean(),
        "optimizer": torch.optim.AdamW(m.parameters()),
    }


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        perm = torch.randperm(len(x))
        lam = torch.rand(1)
        x = lam * x + (1 - lam) * x[perm]
        return self.fc(x)


def mix():
    return {"model": Mix().to("cuda:0"), "batch": torch.randn(6, 4, device="cuda:0"), "loss_fn": torch.sum}


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.freq = 1.0 / 10 ** torch.arange(0, 4).float()
        self.cache = {}

    def table(self, n):
        if n not in self.cache:
            self.cache[n] = torch.outer(torch.arange(n).float(), self.freq)
        return self.cache[n]

    def forward(self, x):
        angle = self.table(x.shape[1])
        a, b = self.q(x).chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def rot():
    torch.manual_seed(0)
    return {"model": Rotary().to("cuda:0"), "batch": torch.randn(2, 3, 8, device="cuda:0"), "loss_fn": lambda o: o.pow(2).sum()}


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        top = self.gate(x).softmax(-1)
        best = top.argmax(-1).cpu()
        out = torch.zeros_like(x)
        for i, e in enumerate(self.experts):
            rows = (best == i).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, e(x.index_select(0, rows)) * top.index_select(0, rows)[:, i : i + 1])
        return out


def moe():
    return {"model": Moe().to("cuda:0"), "batch": torch.randn(9, 4, device="cuda:0"), "loss_fn": torch.sum}


class Ema(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.shadow = [p.detach().clone() for p in self.fc.parameters()]

    def forward(self, x):
        out = self.fc(x)
        with torch.no_grad():
            for s, p in zip(self.shadow, self.fc.parameters(), strict=False):
                s.mul_(0.9).add_(p, alpha=0.1)
        return out


def ema():
    return {"model": Ema().to("cuda:0"), "batch": torch.randn(2, 4, device="cuda:0"), "loss_fn": torch.sum}


class Pipe(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).to("cuda:0")
        self.back = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).to("cuda:1")

    def forward(self, x):
        return self.back(self.front(x))


def pipe():
    m = Pipe()
    return {
        "model": m,
        "batch": torch.randn(4, 4, device="cuda:0"),
        "target": torch.tensor([0, 1, 2, 0], device="cuda:1"),
        "loss_fn": F.cross_entropy,
        "optimizer": torch.optim.SGD(m.parameters(), 0.1),
    }


def loader_step():
    data = TensorDataset(torch.randn(8, 4), torch.randint(3, (8,)))
    x, y = next(iter(DataLoader(data, batch_size=4)))
    x = x.to("cuda:0")
    return {"model": nn.Linear(4, 3).to("cuda:0"), "batch": x, "target": y, "loss_fn": F.cross_entropy}


def lr_step():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = torch.randn(4, 4, device="cuda:0")
    return {"model": model, "batch": x, "loss_fn": torch.sum, "optimizer": optimizer}


def dp_step():
    model = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).to("cuda:0"), [0, 1])
    x = torch.randn(8, 4)
    y = torch.randint(3, (8,))
    return {"model": model, "batch": x, "target": y, "loss_fn": F.cross_entropy}
