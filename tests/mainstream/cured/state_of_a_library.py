import pathlib
import sys
import tempfile

folder = pathlib.Path(tempfile.mkdtemp(), "site-packages")
folder.mkdir()
(folder / "biglib.py").write_text("""
import torch
from torch import nn
class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self._defaults = {}
        self.update = self._wrap(self.update)
    def add_state(self, name, default):
        setattr(self, name, default)
        self._defaults[name] = default
    def _wrap(self, update):
        def wrapped(*args, **kwargs):
            with torch.set_grad_enabled(False):
                update(*args, **kwargs)
        return wrapped
    def _apply(self, fn, recurse=True):
        super()._apply(fn)
        for name in self._defaults:
            setattr(self, name, fn(getattr(self, name)))
        return self
class Accuracy(Metric):
    def __init__(self, classes):
        super().__init__()
        self.add_state("tp", torch.zeros(classes, dtype=torch.long))
    def update(self, preds, target):
        if preds.is_floating_point():
            preds = preds.argmax(1)
        tp = torch.zeros_like(self.tp, device=preds.device).scatter_add(0, target, (preds == target).long())
        self.tp = self.tp + tp
class MetricCollection(nn.Module):
    def __init__(self, metrics):
        super().__init__()
        self.metrics = nn.ModuleDict({type(m).__name__: m for m in metrics})
    def update(self, *args):
        for m in self.metrics.values():
            m.update(*args)
""")
sys.path.insert(0, str(folder))
import torch
from biglib import Accuracy, MetricCollection
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 5).to(device)
metric = MetricCollection([Accuracy(5)])
x, y = torch.randn(3, 4, device=device), torch.tensor([0, 1, 0], device=device)
out = net(x)
metric.update(out.float(), y)
