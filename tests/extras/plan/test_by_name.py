"""What can be done with a model that a configuration describes: each row is a plan of the model and the loop it names."""

import json

import pytest
import torch
from torch import nn

import devwidget
from devwidget.cli.main import main
from devwidget.extras.plan.by_name import plan_by_name
from devwidget.extras.plan.fine_tuning import RANK, AdamW8bit, add_adapters
from devwidget.records.errors import DevwidgetError

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}))
    return path


def small():
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).bfloat16()


def test_each_row_is_a_plan_of_the_same_model(config):
    found = plan_by_name(str(config), 1, "1GiB", None, 2, 32)
    rows = {row.what: row for row in found.rows}
    assert (found.model, found.parameters) == ("LlamaForCausalLM", sum(each.numel() for each in small().parameters()))
    ids = torch.ones(2, 32, dtype=torch.long)
    asked = {"memory": "1GiB", "optimizer": torch.optim.AdamW, "loop": "trainer"}
    trained = devwidget.plan(small().train(), {"input_ids": ids, "labels": ids}, **asked)
    assert rows["training in bfloat16, AdamW"].on_card == trained.devices[0].peak
    assert all(row.fits and not row.problem for row in found.rows)
    assert len(rows) == 6


def test_a_row_that_fails_says_why(tmp_path):
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}))
    failed = [row for row in plan_by_name(str(path), 1, "1GiB", None, 2, 32).rows if row.problem]
    assert [row.problem for row in failed] == ["no linear layer is called one of q_proj, k_proj, v_proj, o_proj"]


def test_adapters_alone_are_trained():
    model = add_adapters(small())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    assert trained == 2 * 4 * 2 * RANK * 64


def test_the_state_of_8_bits_is_two_bytes_for_a_number_and_two_scales_for_a_block():
    layer = nn.Linear(256, 256)
    optimizer = AdamW8bit(layer.parameters())
    layer(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    sizes = [sum(each.nbytes for each in optimizer.state[part].values()) for part in (layer.weight, layer.bias)]
    assert sizes == [2 * 256 * 256 + 2 * 256 * 4, 2 * 256 * 4]


@pytest.mark.slow
def test_the_command_prints_a_table_to_paste(config, capsys):
    assert main(["plan", str(config), "--card", "T4", "--batch", "2", "--length", "32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| LlamaForCausalLM, 0.00 billion parameters, 2 x 32 tokens | 1 x T4 |")
    assert len([line for line in lines if line.startswith("|") and line.endswith("| fits |")]) == 6
    assert main(["plan", str(config), "--memory", "64KiB"]) == 1


def test_what_is_no_model_of_texts_is_refused(tmp_path, capsys):
    path = tmp_path / "config.json"
    with pytest.raises(DevwidgetError, match="cannot load the configuration"):
        plan_by_name(str(path), 1, "1GiB", None, 1, 8)
    path.write_text(json.dumps({"model_type": "vit", "architectures": ["ViTForImageClassification"]}))
    assert main(["plan", str(path), "--memory", "1GiB"]) == 2
    assert "ViTConfig is not a language model" in capsys.readouterr().err
