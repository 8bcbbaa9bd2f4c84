import importlib.util, pathlib, sys, tempfile

folder = pathlib.Path(tempfile.mkdtemp(), "site-packages")
folder.mkdir()
(folder / "biglib.py").write_text("""
import importlib.util, os, tempfile
handle, path = tempfile.mkstemp(prefix="biglib_propagate_", suffix=".py")
os.write(handle, b"def propagate(x, index):\\n    index_j = index[0]\\n    return x.index_select(0, index_j)\\n"); os.close(handle)
spec = importlib.util.spec_from_file_location("biglib_propagate", path)
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
propagate = module.propagate
""")
sys.path.insert(0, str(folder))
import torch
from biglib import propagate

device = "cuda" if torch.cuda.is_available() else "cpu"
x, edges = torch.ones(4, 2, device=device), torch.ones(2, 3, dtype=torch.long, device=device)
print(propagate(x, edges.cpu()).shape)
