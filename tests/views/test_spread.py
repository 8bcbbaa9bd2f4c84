"""Wrappers, shards, offloading hooks and device maps in hand-made snapshots."""

from dataclasses import replace

from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.report.page.parallel_cards import spread_cards
from devwidget.views.parallel_wrappers import find_spreads, whole_bytes
from tests.views.builders import CPU, GPU0, GPU1, split_model, tensor


def test_bytes_of_all_shards_follow_from_the_global_shape():
    shard = replace(tensor("weight", (8, 4), GPU0), bytes=32)
    sizes = {dtype: whole_bytes(replace(shard, dtype=dtype)) for dtype in ("float32", "bfloat16", "bool", "float8_e4m3fn")}
    assert list(sizes.values()) == [128, 64, 32, 32]
    assert whole_bytes(replace(shard, shape=(), dtype="int64")) == 8
    assert whole_bytes(replace(shard, shape=None)) == 0


def test_a_wrapper_counts_the_keys_that_get_its_prefix():
    (card,) = spread_cards(split_model())
    assert (card["kind"], card["path"], card["code"]) == (
        "DataParallel", "decoder", "torch.save(model.decoder.module.state_dict(), path)")  # fmt: skip
    assert "The names of its parameters and buffers (3) begin with `decoder.module.`" in card["words"][-1]


def test_a_wrapper_without_a_gpu_says_that_it_cuts_nothing():
    wrapper = ModuleFacts("", "DataParallel", -1, 0, wrapper="DataParallel",
                          note="no accelerator was available: it calls the module directly")  # fmt: skip
    (card,) = spread_cards(Snapshot((wrapper, ModuleFacts("module", "Linear", 0, 1, (tensor("weight", (4, 4), CPU),)))))
    assert card["words"][0].endswith("it calls the module directly")
    assert card["words"][2].startswith("The names of its parameters and buffers (1) begin with `module.`")


def test_what_waits_in_memory_and_on_disk_is_told_apart():
    kept = tensor("weight", (4, 4), CPU, kept="offloaded to cpu")
    away = replace(tensor("weight", (4, 4), replace(CPU, kind="meta")), bytes=0, kept="offloaded to disk")
    modules = (
        ModuleFacts("", "Net", -1, 0, wrapper="accelerate", device_map="0 x1, cpu x1, disk x1"),
        ModuleFacts("a", "Linear", 0, 1, (tensor("weight", (4, 4), GPU0),), wrapper="accelerate", runs="runs on cuda:0"),
        ModuleFacts("b", "Linear", 0, 1, (kept,), wrapper="accelerate", runs="runs on cuda:0"),
        ModuleFacts("c", "Linear", 0, 1, (away,), wrapper="accelerate", runs="runs on cuda:0"),
    )
    hooks, mapped = find_spreads(Snapshot(modules))
    assert [(share.name, share.here, share.whole) for share in hooks.shares] == [
        ("runs on cuda:0", ((GPU0, 64),), 64),
        ("runs on cuda:0, offloaded to cpu", ((CPU, 64),), 64),
        ("runs on cuda:0, offloaded to disk", (), 64),
    ]
    assert (mapped.note, mapped.shares[0].whole) == ("0 x1, cpu x1, disk x1", 192)
    assert GPU1 not in dict(mapped.shares[0].here)
