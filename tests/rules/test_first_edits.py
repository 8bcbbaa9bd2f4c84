"""Programs on virtual GPUs whose first edits are written into them: they run then, and nothing is left to say."""

import runpy

import pytest

import devwidget
from devwidget.records.finding import apply_edits

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
NET = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"

FILLED_LATER = {
    "a head that a function puts into a model it has moved": f"""{NET}        self.body = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 10)
    def forward(self, x):
        return self.fc(self.body(x))
def get_model(classes, device):
    model = Net().to(device)
    model.fc = nn.Linear(model.fc.in_features, classes)
    return model
model = get_model(3, "cuda")
model(torch.randn(2, 4).cuda()).sum().backward()
""",
    "vectors that replace those of a moved model": f"""{NET}        self.emb = nn.Embedding(9, 4)
    def forward(self, ids):
        return self.emb(ids).mean(1)
net = Net().cuda()
net.emb = nn.Embedding.from_pretrained(torch.rand(9, 4), freeze=False)
net(torch.tensor([[1, 2]]).cuda()).sum().backward()
""",
    "buffers that are measured on data of the host": """class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
    def fit(self, data):
        self.mean = data.mean(0)
    def forward(self, x):
        return x - self.mean
data = torch.rand(5, 4)
net = nn.Sequential(Scale(4), nn.Linear(4, 1)).cuda()
net[0].fit(data)
net(data.cuda()).sum().backward()
""",
    "a layer that joins a list of moved ones": f"""{NET}        self.layers = nn.ModuleList([nn.Linear(4, 4)])
    def grow(self):
        self.layers.append(nn.Linear(4, 4))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
net = Net().to("cuda")
net.grow()
net(torch.randn(2, 4).to("cuda")).sum().backward()
""",
    "a layer that joins an empty container by its name": """net = nn.Sequential()
net.add_module("first", nn.Linear(4, 4))
net.cuda()
net.add_module("second", nn.Linear(4, 2))
net(torch.randn(2, 4).cuda()).sum().backward()
""",
    "a table that a method of the step makes": f"""{NET}        self.cache = None
    def build(self, length):
        frequencies = 1 / 100 ** (torch.arange(0, 4, 2).float() / 4)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.cache = torch.cat([angles.cos(), angles.sin()], -1)
    def forward(self, x):
        if self.cache is None:
            self.build(x.size(1))
        return x * self.cache
net = nn.Sequential(nn.Linear(4, 4), Net()).cuda()
net(torch.randn(2, 5, 4).cuda()).sum().backward()
""",
}

PROGRAMS = {
    **FILLED_LATER,
    "trained weights of losses that two operators of a line read": """class Weighted:
    def __init__(self, count):
        self.variances = [torch.zeros(1, requires_grad=True) for _ in range(count)]
    def __call__(self, losses):
        return sum(torch.exp(-each) * loss + each for each, loss in zip(self.variances, losses))
net = nn.Linear(4, 2).cuda()
y = net(torch.ones(3, 4, device="cuda"))
Weighted(2)([y[:, 0].mean(), y[:, 1].mean()]).sum().backward()
""",
    "a plain tensor of a model whose parts were moved alone": """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4).to("cuda:0")
        self.b = nn.Linear(4, 4).to("cuda:1")
        self.scale = torch.ones(4)
    def forward(self, x):
        return self.b(self.a(x).to("cuda:1")) * self.scale
Net()(torch.ones(2, 4, device="cuda:0"))
""",
    "an index for states on two GPUs": """def reorder(past, order):
    return [state.index_select(0, order) for state in past]
past = [torch.ones(2, 3, device="cuda:0"), torch.ones(2, 3, device="cuda:1")]
reorder(past, torch.tensor([1, 0], device="cuda:0"))
""",
    "a name that the failing call and a test beside it read": """class Best:
    best = None
    def is_better(self, current):
        if self.best is None or torch.lt(current, self.best):
            self.best = current
keeper = Best()
keeper.best = torch.ones(1)
keeper.is_better(torch.zeros(1, device="cuda"))
""",
    "a checkpoint with a dict in it": """import io
file = io.BytesIO()
torch.save({"weights": {"w": torch.ones(1)}, "scores": {"best": torch.ones(1)}}, file)
file.seek(0)
saved = torch.load(file, map_location="cpu")
kept = saved["scores"]["best"]
torch.lt(torch.zeros(1, device="cuda"), kept)
""",
    "rows of a table on the host, chosen by a number of the loop": """table = torch.randn(40, 4)
ties = torch.randint(0, 40, (40, 5), device="cuda")
net = nn.Linear(4, 2).cuda()
for seeds in torch.randperm(40, device="cuda").split(20):
    nodes = ties[seeds].flatten()
    net(table[nodes].to("cuda")).sum().backward()
""",
    "a hand-written gradient under autocast": """class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.mm(weight.t())
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad.mm(weight), grad.t().mm(x)
class Net(nn.Linear):
    def forward(self, x):
        return Product.apply(x, self.weight) + self.bias
net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), Net(8, 3)).cuda()
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = net(torch.randn(5, 6, device="cuda")).square().mean()
loss.backward()
""",
    "what made it shares its line": """class Focal(nn.Module):
    def __init__(self, alpha, gamma=2.0):
        super().__init__()
        self.alpha = torch.tensor(alpha); self.gamma = gamma
    def forward(self, logits, target):
        logp = logits.log_softmax(-1); at = self.alpha[target]; logpt = logp.gather(1, target[:, None]).squeeze(1)
        return -(at * (1 - logpt.exp()) ** self.gamma * logpt).mean()
model = nn.Linear(4, 3).cuda(); crit = Focal([0.2, 0.3, 0.5]).cuda()
x, y = torch.randn(5, 4).cuda(), torch.randint(3, (5,)).cuda()
crit(model(x), y).backward()
""",
    "an attribute that shares its line and is made anew": """class VQ(nn.Module):
    def __init__(self, k=16, d=4, decay=0.9):
        super().__init__()
        self.codebook = nn.Embedding(k, d)
        self.ema_count = torch.zeros(k); self.decay = decay
    def forward(self, z):
        idx = torch.cdist(z, self.codebook.weight).argmin(-1); onehot = F.one_hot(idx, 16).float()
        if self.training:
            self.ema_count = self.decay * self.ema_count + (1 - self.decay) * onehot.sum(0)
        q = self.codebook(idx)
        return z + (q - z).detach(), ((q - z.detach()) ** 2).mean()
vq = VQ().cuda()
for _ in range(2):
    q, commit = vq(torch.randn(5, 4).cuda()); commit.backward()
""",
    "a state that a function of one line makes": """class Decoder(nn.Module):
    def __init__(self, v=20, d=16):
        super().__init__()
        self.emb = nn.Embedding(v, d); self.cell = nn.LSTMCell(d, d); self.out = nn.Linear(d, v); self.d = d
    def init_state(self, n): return torch.zeros(n, self.d), torch.zeros(n, self.d)
    @torch.no_grad()
    def generate(self, n, steps=3):
        state = self.init_state(n)
        tok = torch.zeros(n, dtype=torch.long); toks = []
        for _ in range(steps):
            state = self.cell(self.emb(tok), state)
            tok = self.out(state[0]).argmax(-1); toks.append(tok)
        return torch.stack(toks, 1)
net = Decoder().to("cuda:0").eval(); net.generate(2)
""",
    "a state kept on the host under a key": """
cell, kept = nn.GRU(4, 4).cuda(), {}
def step(x, who):
    out, h = cell(x, kept.get(who))
    kept[who] = h.detach().cpu()
    return out
for _ in range(2):
    step(torch.randn(5, 2, 4).cuda(), 'one')
""",
    "an optimizer of one's own, built too early": """
class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {'lr': lr})
        for group in self.param_groups:
            for p in group['params']:
                self.state[p]['v'] = torch.zeros_like(p)
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group['params']:
                p.sub_(self.state[p]['v'].mul_(0.9).add_(p.grad), alpha=group['lr'])
net = nn.Linear(4, 2)
opt = Momentum(net.parameters(), 0.1)
net.cuda()
net(torch.randn(3, 4).cuda()).sum().backward()
opt.step()
""",
    "a list and a dict of tensors": f"""{NET}        self.grids = [torch.ones(4) * n for n in (1, 2)]
        self.tables = {{'cos': torch.ones(4).cos(), 'sin': torch.ones(4).sin()}}
        self.lin = nn.Linear(4, 4)
    def forward(self, x):
        x = self.lin(x) * self.tables['cos'] + self.tables['sin']
        return sum(x * grid for grid in self.grids)
Net().cuda()(torch.randn(3, 4).cuda()).sum().backward()
""",
    "modules put into a registry after the move": f"""class Queue(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.register_buffer('rows', torch.randn(rows, 4))
{NET}        self.lin, self.queues = nn.Linear(4, 4), nn.ModuleDict()
    def forward(self, x):
        return self.lin(x) @ self.queues['last'].rows.t()
net = Net().cuda()
net.queues['last'] = Queue(5)
net(torch.randn(3, 4).cuda())
""",
    "a tensor that the original of replicas was given": f"""{NET}        self.lin = nn.Linear(4, 3)
        self.scale = torch.ones(3).to('cuda:0')
    def forward(self, x):
        return self.lin(x) * self.scale
nn.DataParallel(Net()).cuda()(torch.ones(4, 4).cuda()).sum().backward()
""",
    "two states of a cell": f"""{NET}        self.cell = nn.LSTMCell(3, 4)
        self.h, self.c = torch.zeros(1, 4), torch.zeros(1, 4)
    def forward(self, x):
        return self.cell(x, (self.h, self.c))[0]
Net().cuda()(torch.ones(1, 3).cuda()).sum().backward()
""",
    "initial states, each on its line": f"""{NET}        self.cell = nn.LSTMCell(3, 4)
        self.h = torch.zeros(1, 4)
        self.c = torch.zeros(1, 4)
    def forward(self, x):
        return self.cell(x, (self.h, self.c))[0]
Net().cuda()(torch.ones(1, 3).cuda()).sum().backward()
""",
    "lengths that are sorted before they are refused": """ids = torch.ones(2, 5, 3, device="cuda")
nn.utils.rnn.pack_padded_sequence(ids, torch.tensor([3, 5]).to("cuda"), batch_first=True, enforce_sorted=False)
""",
    "labels above the line that names their device": """net = nn.Linear(4, 9).cuda()
labels = torch.randint(0, 9, (6,))
h = torch.randn(6, 4, device="cuda")
w = torch.ones(9); w[0] = 0
F.nll_loss(net(h).log_softmax(-1), labels.cuda(), weight=w).backward()
""",
    "a mask for blocks on two GPUs": f"""{NET}        self.homes = 'cuda:0', 'cuda:1'
        self.blocks = nn.ModuleList(nn.Linear(4, 4).to(home) for home in self.homes)
    def forward(self, x, mask):
        for home, block in zip(self.homes, self.blocks):
            x = x.to(home)
            x = block(x) * mask
        return x
Net()(torch.randn(3, 4, device='cuda:0'), torch.ones(3, 1)).sum().backward()
""",
    "layers dealt out in turn": f"""{NET}        self.homes = [f'cuda:{{i % 2}}' for i in range(4)]
        self.layers = nn.ModuleList(nn.Linear(4, 4).to(home) for home in self.homes)
    def forward(self, x):
        for home, layer in zip(self.homes, self.layers):
            x = layer(x.to(home)).relu()
        return x
Net()(torch.randn(3, 4, device='cuda:0')).sum().backward()
""",
    "a way over a device that has a name": f"""HOST = torch.device('cpu')
{NET}        self.a, self.b = nn.Linear(4, 4).to('cuda:0'), nn.Linear(4, 2).to('cuda:1')
    def forward(self, x):
        return self.b(self.a(x).to(HOST).to('cuda:1'))
Net()(torch.randn(3, 4, device='cuda:0')).sum().backward()
""",
    "a way over a device that has a name after a cast": f"""HOST = torch.device('cpu')
{NET}        self.a, self.b = nn.Linear(4, 4).to('cuda:0'), nn.Linear(4, 2).to('cuda:1')
    def forward(self, x):
        return self.b(self.a(x).double().to(torch.float32).to(HOST).to('cuda:1'))
Net()(torch.randn(3, 4, device='cuda:0')).sum().backward()
""",
    "a wrapper that is only cast": """net = nn.Linear(4, 2)
wrapped = nn.DataParallel(net, device_ids=[0, 1]).to(torch.float64)
wrapped(torch.ones(4, 4, dtype=torch.float64).cuda()).sum().backward()
""",
    "a wrapper of a model that was not moved": """net = nn.DataParallel(nn.Linear(4, 2), device_ids=[0, 1])
net(torch.ones(4, 4).cuda()).sum().backward()
assert isinstance(net, nn.DataParallel)
""",
    "a plain tensor that asks for a gradient": f"""{NET}        self.shift = torch.zeros(1, requires_grad=True)
    def forward(self, x):
        return x + self.shift
net = Net().cuda()
net(torch.ones(2, device="cuda")).sum().backward()
assert isinstance(net.shift, nn.Parameter)
""",
    "a plain tensor computed from arguments": """class Graph(nn.Module):
    def __init__(self, ties):
        super().__init__()
        self.ties = ties / ties.sum(1)
        self.lin = nn.Linear(3, 3)
    def forward(self, x):
        return self.ties @ self.lin(x)
net = Graph(torch.ones(3, 3)).cuda()
net(torch.ones(3, 3, device="cuda"))
assert "ties" in dict(net.named_buffers())
""",
}
EXPLAINED = {
    **FILLED_LATER,
    "a batch that a loop sends to another GPU than the model's": """net = nn.Linear(3, 1).to("cuda:1")
for x in [torch.ones(2, 3), torch.ones(2, 3)]:
    x = x.cuda()
    net(x).sum().backward()
""",
    "a loss that is plotted before it goes backward": """import numpy as np
net = nn.Linear(4, 3).cuda()
def step(x):
    loss = net(x).square().mean()
    curve.append(np.mean(loss.numpy()))
    loss.backward()
curve = []
step(torch.randn(5, 4, device="cuda"))
assert net.weight.grad is not None
""",
    "a detached value for NumPy beside the loss": """import numpy as np
net = nn.Linear(4, 3).cuda()
def loss_and_report(out):
    gap = out - 1
    seen.append(float(np.median(gap.detach().numpy())))
    return gap.abs().mean()
seen = []
loss_and_report(net(torch.randn(5, 4, device="cuda"))).backward()
assert net.weight.grad is not None
""",
    "a mean of losses in a list": """net = nn.Linear(4, 3).cuda()
losses = [net(torch.randn(5, 4, device="cuda")).square().mean() for _ in range(2)]
torch.stack(losses).mean().detach().numpy()
torch.stack(losses).numpy()
torch.stack(losses).mean().backward()
""",
    "a comparison for NumPy in a line that computes on": """net = nn.Linear(4, 3).cuda()
def loss_of(x, y):
    out = net(x)
    return out.square().mean() * (1 + (out.argmax(1) == y).numpy().mean())
loss_of(torch.randn(5, 4, device="cuda"), torch.ones(5, device="cuda")).backward()
assert net.weight.grad is not None
""",
    "an output in bfloat16 for NumPy": """net = nn.Linear(4, 3).cuda().bfloat16()
def embed(x):
    out = net(x)
    return out.detach().cpu().numpy()
embed(torch.ones(5, 4, device="cuda", dtype=torch.bfloat16))
""",
    "rows of a table on the host that is written": """def begin(scores):
    table = torch.zeros(2, 5)
    table[:, 0] = 1
    return table, scores.log()
def reorder(table, scores):
    rows = scores.topk(2).indices
    table[:, :2] = table[rows, :2]
    return table
def search(scores):
    table, scores = begin(scores)
    for _ in range(2):
        table = reorder(table, scores)
search(torch.rand(2, device="cuda"))
""",
    "a gradient penalty whose weights are made in its call": """critic = nn.Linear(6, 1).cuda()
mixed = torch.randn(4, 6, device="cuda", requires_grad=True)
score = critic(mixed)
torch.autograd.grad(score, mixed, grad_outputs=torch.ones(score.size()), create_graph=True)
""",
    "a parameter beside a network that was moved before": f"""{NET}        self.net = net
        self.centers = nn.Parameter(torch.randn(4, 3))
    def forward(self, x):
        return torch.cdist(self.net(x), self.centers)
net = nn.Linear(5, 3).cuda()
clusters = Net()
clusters(torch.randn(2, 5, device="cuda")).sum().backward()
assert clusters.centers.is_cuda
""",
    "a target made in the call of a loss beside an output": """critic = nn.Linear(6, 1).cuda()
loss = nn.BCEWithLogitsLoss()
fake = torch.randn(4, 6, device="cuda")
loss(critic(fake), torch.ones(4, 1)).backward()
""",
    "an image that a layer without parameters took first": """net = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 3)).cuda()
image = torch.rand(1, 3, 5, 5, requires_grad=True)
net(image).mean().backward()
""",
    "a mask that attention turns into another": """attn = nn.MultiheadAttention(8, 2, batch_first=True).cuda()
h = torch.randn(2, 5, 8, device="cuda")
mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
attn(h, h, h, attn_mask=mask)[0].sum().backward()
""",
    "states that a module keeps in a tuple": f"""{NET}        self.lstm = nn.LSTM(4, 5)
        self.state = self.begin()
    def begin(self):
        return torch.zeros(1, 2, 5), torch.zeros(1, 2, 5)
    def forward(self, x):
        out, self.state = self.lstm(x, self.state)
        return out
net = Net().cuda()
net.state = net.begin()
net(torch.randn(3, 2, 4).cuda())
""",
}
"""Of which `explain` sees one fault at a time."""


def ran(path, *, heal):
    """(what stopped a program on two virtual GPUs, its findings but hints)."""
    error = None
    with devwidget.simulate(gpus=2), devwidget.record(heal=heal) as recording:
        try:
            runpy.run_path(str(path))
        except Exception as stopped:
            error = stopped
    return error, [found for found in recording.trace.findings if found.severity != "info"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_clean_with_the_first_edit_of_each_finding(tmp_path, name):
    path, source = tmp_path / "program.py", HEAD + PROGRAMS[name]
    path.write_text(source)
    _, found = ran(path, heal=True)
    assert found
    edits = [edit for each in found for edit in each.fixes[0].edits]
    assert edits
    path = tmp_path / "edited.py"
    path.write_text("\n".join(apply_edits(source.split("\n"), edits)))
    assert ran(path, heal=False) == (None, []), path.read_text()


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_program_runs_with_the_first_edits_of_its_explanations(tmp_path, name):
    path, source = tmp_path / "program0.py", HEAD + EXPLAINED[name]
    for turn in range(3):
        path = tmp_path / f"program{turn}.py"
        path.write_text(source)
        with devwidget.simulate(gpus=1):
            try:
                runpy.run_path(str(path))
            except (RuntimeError, TypeError) as error:
                found = devwidget.explain(error).findings
            else:
                break
        source = "\n".join(apply_edits(source.split("\n"), found[0].fixes[0].edits))
    assert 1 <= turn <= 2, source
