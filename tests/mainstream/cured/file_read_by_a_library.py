"""A library reads a file of tensors: its function takes no `map_location`."""
import pathlib
import sys
import tempfile

folder = pathlib.Path(tempfile.mkdtemp(), "site-packages")
folder.mkdir()
(folder / "tinyfile.py").write_text("""
import torch
def read(path):
    return torch.load(path, None)
""")
sys.path.insert(0, str(folder))
import torch
from tinyfile import read
from torch import nn

path = folder / "data.pt"
torch.save(torch.ones(3, 4), path)
data = read(path)
model = nn.Linear(4, 2).to("cuda")
print(model(data).shape)
