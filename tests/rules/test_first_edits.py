"""Programs on virtual GPUs whose first edits are written into them: they run then, and nothing is left to say."""

import runpy

import pytest

import devwidget
from devwidget.records.finding import apply_edits

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
NET = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"

PROGRAMS = {
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
    "a batch and a model of one line": """net = nn.Linear(4, 2).cuda(); x = torch.randn(3, 4); y = torch.ones(3, 2).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
loss = F.mse_loss(net(x), y); loss.backward(); opt.step()
""",
    "a loop that stops at a number": f"""{NET}        self.cell = nn.GRUCell(4, 4)
    def forward(self, x):
        h = torch.zeros_like(x)
        for _ in range(5):
            h = self.cell(x, h)
            if h.abs().mean().item() > 0.9:
                break
        return h
Net().cuda()(torch.randn(3, 4).cuda()).sum().backward()
""",
    "a loop that stops where two values meet": f"""{NET}        self.step = nn.Linear(4, 4)
    def forward(self, x):
        z = torch.zeros_like(x)
        for _ in range(6):
            before, z = z, torch.tanh(0.1 * self.step(z) + x)
            if (z - before).norm() < 1e-3 * z.norm():
                break
        return z
Net().cuda()(torch.randn(3, 4).cuda()).sum().backward()
""",
    "a bare move to the first of two GPUs": f"""{NET}        self.table = nn.Parameter(torch.randn(6, 4))
    def forward(self, x):
        rows = torch.arange(x.shape[0]).cuda()
        return x + self.table[rows]
Net().to('cuda:1')(torch.randn(3, 4, device='cuda:1'))
""",
    "a device told for the first of two blocks": f"""class Block(nn.Linear):
    def forward(self, x, scale):
        return super().forward(x) * scale
{NET}        self.blocks = nn.ModuleList(Block(4, 4).to(f'cuda:{{i}}') for i in range(2))
    def forward(self, x):
        scale = torch.rand(4, device=x.device)
        for block in self.blocks:
            x = block(x.to(block.weight.device), scale)
        return x
Net()(torch.randn(3, 4, device='cuda:0'))
""",
    "an input moved for the first of two layers": f"""{NET}        self.a = nn.Linear(4, 4).to('cuda:0')
        self.b = nn.Linear(4, 4).to('cuda:1')
    def forward(self, x):
        x = x.to('cuda:0')
        h = self.b(self.a(x).to('cuda:1'))
        return h + x
Net()(torch.randn(3, 4).to('cuda:1'))
""",
    "a target that is the input too": """
enc, dec = nn.Linear(6, 3).to('cuda:0'), nn.Linear(3, 6).to('cuda:1')
x = torch.randn(5, 6, device='cuda:0')
def model(x):
    return dec(enc(x).to('cuda:1'))
loss = F.l1_loss(model(x), x)
""",
    "two lines that make what one operator meets": """
def angles(n, w):
    place = torch.arange(n).unsqueeze(1)
    speed = torch.exp(torch.arange(0, w) * -0.1)
    return (place * speed).sin()
h = torch.zeros(6, 4, device='cuda') + angles(6, 4)
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
    "buffers that are not streamed": """
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
def load(part, where):
    for weight in part.parameters():
        weight.data = weight.data.to(where)
x = torch.randn(3, 4, device='cuda')
load(net, x.device)
net(x)
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
    "keys that modules refuse": f"""{NET}        self.heads = {{key: nn.Linear(4, 2) for key in ('train', 'eval')}}
    def forward(self, x):
        return self.heads['train'](x)
Net().cuda()(torch.randn(3, 4).cuda())
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
    "layers dealt out in turn": f"""{NET}        self.homes = [f'cuda:{{i % 2}}' for i in range(4)]
        self.layers = nn.ModuleList(nn.Linear(4, 4).to(home) for home in self.homes)
    def forward(self, x):
        for home, layer in zip(self.homes, self.layers):
            x = layer(x.to(home)).relu()
        return x
Net()(torch.randn(3, 4, device='cuda:0')).sum().backward()
""",
    "one line that leaves the GPU and comes back": f"""{NET}        self.a = nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x).cpu().softmax(-1).to(x.device)
nn.Sequential(Net(), Net(), Net()).cuda()(torch.randn(3, 4).cuda())
""",
    "a way over a device that has a name": f"""HOST = torch.device('cpu')
{NET}        self.a, self.b = nn.Linear(4, 4).to('cuda:0'), nn.Linear(4, 2).to('cuda:1')
    def forward(self, x):
        return self.b(self.a(x).to(HOST).to('cuda:1'))
Net()(torch.randn(3, 4, device='cuda:0')).sum().backward()
""",
    "a statistic of numpy for a log": """
log, net = [], nn.Linear(4, 1).cuda()
import numpy as np
def objective(gap):
    log.append(float(np.median(gap.detach().numpy())))
    return gap.abs().mean()
objective(net(torch.randn(6, 4).cuda()))
""",
}


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


@pytest.mark.parametrize("moved", [".to(device)", ".flatten().to(device=device)", ".cuda()", ".to(torch.float32).cuda()"])
def test_a_line_that_moves_what_it_makes_is_left_alone(tmp_path, moved):
    path = tmp_path / "program.py"
    lines = f"""import torch
device = torch.device('cuda:0')
rewards = torch.zeros(8)
values = torch.zeros(8){moved}
print((rewards - values).sum())
""".split("\n")
    path.write_text("\n".join(lines))
    _, (found,) = ran(path, heal=False)
    assert [edit.first for edit in found.fixes[0].edits] == [3]


GUARDED = """import torch
from torch import nn
if __name__ == '__main__':
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    net = nn.Linear(4, 4).to(device)
    if True:
        target = nn.Linear(4, 4)
    target(net(torch.randn(2, 4).to(device)))
"""


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (GUARDED, "device"),
        (GUARDED.replace("    device = ", "    if len('ab') == 2:\n        device = "), "'cuda:0'"),  # may not have run
    ],
)
def test_the_name_of_the_device_is_taken_from_a_block_around(tmp_path, source, written):
    path = tmp_path / "program.py"
    path.write_text(source)
    with devwidget.simulate(gpus=2), devwidget.record() as recording, pytest.raises(RuntimeError):
        runpy.run_path(str(path), run_name="__main__")
    (found,) = (each for each in recording.trace.findings if each.severity == "error")
    assert found.fixes[0].edits[0].text.strip() == f"target = nn.Linear(4, 4).to({written})"


def test_a_line_that_only_casts_what_it_makes_is_given_the_device_too(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("""import torch
x = torch.ones(8, device='cuda')
def add(x):
    rewards = torch.zeros(8)
    values = torch.zeros(8).to(torch.float32)
    return x + (rewards - values)
print(add(x).sum())
""")
    _, (found,) = ran(path, heal=False)
    assert [edit.first for edit in found.fixes[0].edits] == [4, 5]


CELL, STOP = "            h = self.cell(x, h)\n", "            if h.mean().item() > 9:\n                break\n"


@pytest.mark.parametrize(
    "loop",
    [
        f"{CELL}{STOP}        return h, i",
        f"{CELL}            seen.append(i)\n{STOP}        return h",
        f"{STOP}{CELL}        return h",
    ],
)
def test_a_loop_that_does_more_than_assign_keeps_its_break(tmp_path, loop):
    path = tmp_path / "program.py"
    begin = "        self.cell = nn.GRUCell(4, 4)\n    def forward(self, x):\n        h = torch.zeros_like(x)\n"
    net = f"{NET}{begin}        for i in range(4):\n{loop}\n"
    path.write_text(f"{HEAD}seen = []\n{net}Net().cuda()(torch.randn(3, 4).cuda())\n")
    _, (found,) = ran(path, heal=False)
    assert found.kind == "host-sync"
    assert not any(fix.edits for fix in found.fixes)


def test_the_loop_without_a_break_gives_the_values_of_the_one_with_it(tmp_path):
    import torch

    source = HEAD + "torch.manual_seed(3)\n" + PROGRAMS["a loop that stops where two values meet"].replace(
        "Net().cuda()", "out = Net().cuda()").replace(".sum().backward()", "")  # fmt: skip
    (tmp_path / "program.py").write_text(source)
    _, (found,) = ran(tmp_path / "program.py", heal=False)
    (tmp_path / "edited.py").write_text("\n".join(apply_edits(source.split("\n"), found.fixes[0].edits)))
    with devwidget.simulate(gpus=1):
        before, after = (runpy.run_path(str(tmp_path / name))["out"].detach().cpu() for name in ("program.py", "edited.py"))
    assert torch.equal(before, after)
