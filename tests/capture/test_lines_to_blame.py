"""Programs whose fault stands elsewhere than where it strikes: the line that is blamed, and whether its first edit cures."""

import runpy
import textwrap

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.devices import set_default_device
from devwidget.records.finding import apply_edits
from tests.sampling import sample

NET = """
    import io
    import torch
    from torch import nn
"""


@pytest.fixture
def record(tmp_path):
    def run(text, name="program.py"):
        file = tmp_path / name
        file.write_text(text)
        with devwidget.simulate(gpus=2), devwidget.record(heal=True) as recording:
            runpy.run_path(str(file))
        return recording.trace

    yield run
    set_default_device(None)


def written(text):
    return textwrap.dedent(NET).lstrip() + textwrap.dedent(text).lstrip("\n")


def line(text, part):
    return next(number for number, row in enumerate(text.splitlines(), 1) if part in row)


def serious(trace):
    return [found for found in trace.findings if found.severity != "info"]


def is_blamed(record, text, kind, fault, birth, *, cured=True):
    """One finding, at these lines; its first edit leaves nothing to find."""
    (found,) = serious(record(text))
    assert (found.kind, found.fault.line, found.birth.line) == (kind, line(text, fault), line(text, birth))
    if cured:
        after = "\n".join(apply_edits(text.splitlines(), found.fixes[0].edits)) + "\n"
        assert serious(record(after, "mended.py")) == []
    return found


BLAMED = {
    "a wrapped model that was moved later is blamed on the move": (
        """
    def save(net):
        return {k: v.clone() for k, v in net.module.cpu().state_dict().items()}
    net = nn.Linear(6, 2).cuda()
    model = nn.DataParallel(net, device_ids=[0, 1])
    x = torch.randn(8, 6).cuda()
    model(x)
    save(model)
    model(x)  # fails
    """,
        "parallel-misplaced",
        "# fails",
        "module.cpu()",
    ),
    "what layers of two gpus share is moved where it is used": (
        """
    class Adapted(nn.Module):
        def __init__(self, shared, device):
            super().__init__()
            self.shared = shared
            self.scale = nn.Parameter(torch.ones(3, device=device))
            for name in shared:
                shared[name] = shared[name].to(device)
        def forward(self, x):
            down = self.shared["down"][:, :5]
            return x @ down.T * self.scale
    shared = nn.ParameterDict({"down": torch.randn(3, 8)})
    layers = nn.ModuleList([Adapted(shared, "cuda:0"), Adapted(shared, "cuda:1")])
    for number, layer in enumerate(layers):
        layer(torch.randn(2, 5, device=f"cuda:{number}"))
    """,
        "wrong-device",
        "return x @ down.T",
        "shared[name] = ",
    ),
    "weights that are tied after the split are split tied weights": (
        """
    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 4).to('cuda:0')
            self.head = nn.Linear(4, 9, bias=False).to('cuda:1')
            self.head.weight = self.embed.weight
        def forward(self, ids):
            h = self.embed(ids)
            return self.head(h.to('cuda:1'))
    LM()(torch.randint(0, 9, (2, 3), device='cuda:0'))
    """,
        "split-tied-weights",
        "return self.head",
        "self.embed = ",
    ),
    "what a hook takes to the host is no attribute that stayed behind": (
        """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.seen = nn.Linear(4, 8), nn.Linear(8, 2), {}
        def forward(self, x):
            return self.head(self.body(x).relu())
    model = Net().cuda()
    def keep(module, inputs, output):
        model.seen["body"] = output.cpu()
    model.body.register_forward_hook(keep)
    x = torch.randn(3, 4).cuda()
    (model(x).mean() + (model.seen["body"] - torch.zeros(3, 8).cuda()).abs().mean()).backward()
    """,
        "wrong-device",
        "abs().mean()",
        "output.cpu()",
    ),
    "what was moved to the wrong gpu goes to the right one at once": (
        """
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        def forward(self, h):
            causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1).to("cuda:0")
            return self.attn(h, h, h, attn_mask=causal)[0]
    Head().to("cuda:1")(torch.randn(2, 5, 8, device="cuda:1"))
    """,
        "wrong-device",
        "self.attn(h",
        "causal = ",
    ),
    "what a method of a made tensor is given is made there too": (
        """
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.bias = nn.Linear(4, 4), None
        def forward(self, x):
            if self.bias is None:
                self.bias = torch.zeros(4, 4).masked_fill(torch.rand(4, 4) < 0.2, -1e4)
            return self.keys(x) + self.bias
    Scores().cuda()(torch.randn(4, 4).cuda())
    """,
        "unregistered-tensor",
        "self.keys(x) + self.bias",
        "masked_fill",
    ),
    "all that is stacked is made in one place": (
        """
    class Spatial(nn.Module):
        def forward(self, image, angle):
            c, s = torch.cos(torch.tensor(angle)), torch.sin(torch.tensor(angle))
            theta = torch.stack([torch.stack([c, -s, torch.tensor(0.0)]), torch.stack([s, c, torch.tensor(0.0)])])
            grid = nn.functional.affine_grid(theta[None].expand(len(image), -1, -1), list(image.size()), align_corners=False)
            return nn.functional.grid_sample(image, grid, align_corners=False)
    Spatial()(torch.randn(2, 1, 6, 6, device="cuda:0"), 0.3)
    """,
        "wrong-device",
        "grid_sample",
        "c, s = ",
    ),
    "a dict with numbers for keys becomes buffers": (
        """
    class Prototypes(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.means = nn.Linear(4, 6), {c: torch.randn(6) for c in range(3)}
        def forward(self, x):
            return torch.stack([self.encoder(x) @ mean for mean in self.means.values()], 1)
    Prototypes().cuda()(torch.randn(5, 4).cuda()).sum().backward()
    """,
        "unregistered-tensor",
        "@ mean",
        "self.means",
    ),
    "what a module is handed as a tuple was made where it was made": (
        """
    class Normed(nn.Module):
        def __init__(self, stats):
            super().__init__()
            self.mean, self.std = stats
            self.head = nn.Linear(3, 2)
        def forward(self, x):
            return self.head((x - self.mean) / self.std)
    data = torch.randn(50, 3)
    Normed((data.mean(0), data.std(0))).cuda()(data[:4].cuda())
    """,
        "unregistered-tensor",
        "x - self.mean",
        "data = torch.randn",
    ),
    "a teacher that a module hides is moved where it is made": (
        """
    class Distilled(nn.Module):
        def __init__(self, teacher):
            super().__init__()
            self.student = nn.Linear(6, 3)
            self.__dict__["teacher"] = teacher
        def forward(self, x):
            return self.student(x) - self.teacher(x)
    teacher = nn.Linear(6, 3).eval()
    Distilled(teacher).cuda()(torch.randn(5, 6).cuda()).sum().backward()
    """,
        "unregistered-tensor",
        "self.teacher(x)",
        "teacher = nn.Linear",
    ),
    "in a split model what is read below stays in its stage": (
        """
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 4).to("cuda:1")
            self.register_buffer("queue", torch.randn(4, 8, device="cuda:0"))
        def forward(self, x):
            q = self.query(x)
            k = self.key(x.to("cuda:1"))
            near = (q * k).sum(1)
            return near.sum() + (q @ self.queue).sum().to(near.device)
    Split()(torch.randn(3, 4, device="cuda:0")).backward()
    """,
        "wrong-device",
        "(q * k)",
        "q = self.query(x)",
    ),
}


@pytest.mark.parametrize("name", sample(BLAMED, every=3))
def test_it_is_the_line_to_blame_that_is_found(record, name):
    text, kind, fault, birth = BLAMED[name]
    is_blamed(record, written(text), kind, fault, birth)


SHARED = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)
    def forward(self, x):
        return self.body(x)
"""


@pytest.mark.parametrize(
    "export",
    [
        "deployed = nn.Sequential(policy.body, nn.Tanh())\n    deployed.cpu()\n    return deployed.state_dict()",
        "policy.cpu()\n    return policy.state_dict()",
        "policy = policy.cpu()\n    return policy.state_dict()",
        "return policy.body.cpu().state_dict()",
    ],
)
def test_layers_that_were_taken_away_in_place_are_copied_first(record, export):
    text = written(f"{SHARED}\ndef export(policy):\n    {export}\n")
    text += "policy = Policy().cuda()\nx = torch.randn(3, 4).cuda()\nexport(policy)\npolicy(x)\n"
    is_blamed(record, text, "wrong-device", "return self.body(x)", ".cpu()")


def test_a_model_that_is_run_where_it_was_taken_is_not_replaced_by_a_copy(record):
    text = written(f"{SHARED}\ndef check(policy, x):\n    policy.cpu()\n    return policy(x.cpu())\n")
    text += "policy = Policy().cuda()\nx = torch.randn(3, 4).cuda()\ncheck(policy, x)\npolicy(x)\n"
    (found,) = serious(record(text))
    assert found.birth.line == line(text, "policy.cpu()")
    assert "deepcopy" not in str(found)


@pytest.mark.parametrize("where", ["", ", map_location='cpu'", ", map_location='cuda:1'"])
def test_weights_that_a_checkpoint_brought_are_read_to_where_the_model_was(record, where):
    text = f"""
    file = io.BytesIO()
    torch.save(nn.Linear(5, 3).to('cuda:1').state_dict(), file)
    file.seek(0)
    model = nn.Linear(5, 3).to('cuda:0')
    weights = torch.load(file{where})
    model.load_state_dict(weights, assign=True)
    x = torch.randn(4, 5, device='cuda:0')
    model(x)
    """
    if "cuda" in where:  # somebody has asked for that GPU
        assert len(serious(record(written(text)))) == 1
    else:
        is_blamed(record, written(text), "wrong-device", "model(x)", "torch.load")


@pytest.mark.parametrize(("saved", "used"), [("{'w': torch.ones(3)}", "weights['w']"), ("torch.ones(3)", "weights")])
def test_what_a_checkpoint_brought_is_read_to_where_it_is_used(record, saved, used):
    text = f"""
    file = io.BytesIO()
    torch.save({saved}, file)
    file.seek(0)
    weights = torch.load(file, map_location='cpu')
    x = torch.ones(3, device='cuda:0')
    x + {used}
    """
    is_blamed(record, written(text), "wrong-device", "x + weights", "torch.load")


RESIDUAL = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        return {out}
layers = nn.Sequential(*(Layer() for _ in range({count}))).cuda()
layers(torch.randn(3, 4).cuda())
"""
OVER_THE_HOST = "self.a(x).cpu().softmax(-1).to(x.device)"


@pytest.mark.parametrize("out", [f"x + {OVER_THE_HOST}", f"{OVER_THE_HOST} + x", f"torch.cat([x, {OVER_THE_HOST}])"])
def test_data_that_goes_around_a_residual_is_one_chain(record, out):
    (found,) = serious(record(written(RESIDUAL.format(out=out, count=4))))
    assert found.kind == "ping-pong"
    assert "8 times" in found.headline


def test_one_excursion_beside_a_residual_is_silent(record):
    assert serious(record(written(RESIDUAL.format(out=f"x + {OVER_THE_HOST}", count=1)))) == []


def test_a_loader_that_shuffles_is_given_a_generator_of_the_default_device(record):
    text = """
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_default_device('cuda')
    loader = DataLoader(TensorDataset(torch.randn(12, 5)), batch_size=4, shuffle=True)
    batch = next(iter(loader))
    """
    text = written(text)
    (found,) = serious(record(text))
    assert (found.kind, found.fault.line) == ("wrong-device", line(text, "batch = "))
    after = "\n".join(apply_edits(text.splitlines(), found.fixes[0].edits)) + "\n"
    assert serious(record(after, "mended.py")) == []


ATTRIBUTES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.mask, self.parts = torch.zeros(4), [torch.zeros(4), torch.zeros(4)]
        table = torch.zeros(4)
        self.tables = {{'one': table.cos(), 'two': table.sin()}}
    def reset(self):
        self.mask = torch.ones(4)
        self.parts[1] = torch.full((4,), 2.0)
    def forward(self, x):
        return self.lin(x) * self.{name}
net = Net().cuda()
net.reset()
net(torch.randn(2, 4).cuda())
"""


@pytest.mark.parametrize(
    ("name", "birth"),
    [
        ("mask", "torch.ones"),
        ("parts[1]", "torch.full"),
        ("parts[0]", "self.mask, self.parts"),
        ("tables['two']", "table = "),
    ],
)
def test_the_last_line_that_gave_an_attribute_its_value_is_its_birth(record, name, birth):
    text = written(ATTRIBUTES.format(name=name))
    (found,) = serious(record(text))
    assert (found.kind, found.birth.line) == ("unregistered-tensor", line(text, birth))


def test_the_variable_that_an_attribute_was_computed_from_is_its_birth_and_not_what_that_came_from(record):
    text = """
    class Rope(nn.Module):
        def __init__(self):
            super().__init__()
            inv = 100 ** -(torch.arange(0, 4, 2) / 4)
            table = torch.outer(torch.arange(6), inv)
            self.tables = {'cos': table.cos(), 'sin': table.sin()}
        def forward(self, x):
            cos, sin = (self.tables[k][:x.shape[0]] for k in ('cos', 'sin'))
            return x * cos - x * sin
    Rope().cuda()(torch.randn(3, 2).cuda())
    """
    text = written(text)
    (found,) = serious(record(text))
    assert (found.kind, found.birth.line) == ("unregistered-tensor", line(text, "table = "))


def test_what_an_optimizer_keeps_in_its_attributes_is_built_after_the_move(record):
    text = """
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})
            self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for slow, p in zip(self.slow, group["params"]):
                    p.sub_(p.grad)
                    slow.add_(p - slow, alpha=0.5)
                    p.copy_(slow)
    model = nn.Linear(4, 2)
    optimizer = Lookahead(model.parameters())
    model.to("cuda:0")
    model(torch.randn(3, 4, device="cuda:0")).mean().backward()
    optimizer.step()
    """
    found = is_blamed(record, written(text), "optimizer-misplaced", "slow.add_(p - slow", "self.slow = ")
    assert not [fix for fix in found.fixes if "slow = slow.to" in fix.code]  # `self.slow` would stay as it is


def test_the_state_of_a_warmed_up_optimizer_goes_along_with_the_model(record):
    text = """
    def train(model, optimizer, x):
        model(x).mean().backward()
        optimizer.step()
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, torch.randn(3, 4))
    model.cuda()
    optimizer.zero_grad()
    train(model, optimizer, torch.randn(3, 4).cuda())
    """
    found = is_blamed(record, written(text), "optimizer-misplaced", "optimizer.step()", "model.cuda()")
    assert [edit.first for edit in found.fixes[0].edits] == [line(written(text), "model.cuda()") + 1]


def slopes(count, device=None):
    return torch.arange(1, count + 1, device=device) * 0.5


class Biased(nn.Module):
    """Its table is made by a function that hands on the device which it is given."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.make = nn.Linear(4, 4), make

    def table(self, count, device=None):
        return slopes(count, device)

    def forward(self, x):
        return self.layer(x) + self.make(self)


def leave_out(model):
    return slopes(4)


def leave_out_of_a_method(model):
    return model.table(4)


def say_where(model):
    return slopes(4, device="cpu")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (leave_out, "return slopes(4)"),
        (leave_out_of_a_method, "return model.table(4)"),
        (say_where, "return torch.arange(1, count + 1, device=device) * 0.5"),
    ],
)
def test_who_leaves_out_a_device_that_a_function_would_hand_on_is_to_blame(make, line):
    with devwidget.simulate(gpus=1):
        trace = devwidget.trace(Biased(make).to("cuda:0"), torch.ones(2, 4, device="cuda:0"), verify=False)
    (found,) = trace.findings
    assert found.birth.text == line
