"""Writes devwidget/gpus/native_rules.txt from the native_functions.yaml that torch ships in torchgen.

Run as `python tests/gpus/native_rules_source.py`.
"""

import pathlib
import re
import textwrap

import torchgen
import yaml

TARGET = pathlib.Path(__file__).parents[2] / "devwidget" / "gpus" / "native_rules.txt"
INTERNAL = re.compile(
    r"(?<!^to_)mkldnn|fbgemm|nnpack|quantize|for_cpu|cpu_fallback|^_(?!histogram)|^slow_conv|weight_int|miopen|^q_|int_repr|^rnn|sparse|resize_as_sparse|"
    r"coalesce|^values|^indices|^to_(?!mkldnn)|^dense_dim|is_coalesced|row_indices|col_indices|copy_sparse|hspmm|sspaddmm"
)
"""Kernels that torch's own CPU code picks, and those of other layouts: nobody calls them on a CUDA tensor by name."""


def functions():
    path = pathlib.Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    return yaml.safe_load(path.read_text())


def backends(entry):
    return {name.strip() for keys in entry.get("dispatch", {}) for name in keys.split(",")}


def tables():
    """Names of operators by how CUDA checks their devices."""
    entries = {entry["func"].split("(")[0]: entry for entry in functions()}
    found = {"UNCHECKED": [], "STRUCTURED": [], "COMPOSITE": [], "CPU_ONLY": []}
    for name, entry in entries.items():
        arguments = entry["func"].split(" -> ")[0]
        kernel = entries.get(entry.get("structured_delegate"), entry)
        here = backends(kernel) | backends(entry)
        composite = any(key.startswith("Composite") for key in here)
        if "CPU" in here and "CUDA" not in here and not composite and not INTERNAL.search(name):
            found["CPU_ONLY"].append(name)
        if len(re.findall(r"Tensor", arguments)) + len(re.findall(r"Tensor(?:\(\w!\))?\[\]", arguments)) < 2:
            continue
        if entry.get("device_check") == "NoCheck":
            found["UNCHECKED"].append(name)
        elif entry.get("structured_delegate") or entry.get("structured"):
            found["STRUCTURED"].append(name)
        elif any("CompositeExplicit" in key for key in here) and "CUDA" not in here:
            found["COMPOSITE"].append(name)
    return found


def render(found):
    return "\n\n".join(f"{title}\n{fill(operators)}" for title, operators in found.items()) + "\n"


def fill(operators):
    return textwrap.fill(" ".join(operators), 124, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    TARGET.write_text(render(tables()))
