import pathlib, sys, tempfile

folder = pathlib.Path(tempfile.mkdtemp(), "site-packages")
folder.mkdir()
(folder / "biglib.py").write_text("""
import torch
from torch import nn
def mixup(x, y):
    x.mul_(0.5)
    return x, nn.functional.one_hot(y, 5).float()
class SoftTarget(nn.Module):
    def forward(self, x, target):
        return torch.sum(-target * x.log_softmax(-1), -1).mean()
""")
sys.path.insert(0, str(folder))
import torch
from torch import nn
from biglib import SoftTarget, mixup

device = "cuda" if torch.cuda.is_available() else "cpu"
net, loss_fn = nn.Linear(4, 5).to(device), SoftTarget()
for step in range(2):
    x, y = torch.randn(4, 4).to(device), torch.randint(0, 5, (4,))
    a, b = mixup(x, y)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = loss_fn(net(a), b)
print([float(a) for a in (1.0, 2.0)])
