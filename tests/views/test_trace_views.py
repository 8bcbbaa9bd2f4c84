"""Hops, marks on rows, parallel calls, memory and lanes of a trace."""

from dataclasses import replace

from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryPoint, Refusal
from devwidget.records.trace import Held, ModuleEvent, Operand, OpEvent, Trace
from devwidget.report.figures.timeline import timeline_figure
from devwidget.views.clock import Clock
from devwidget.views.hops import group_hops, join_by_line
from devwidget.views.memory import memory_bars, memory_series
from devwidget.views.overlay import make_overlay
from devwidget.views.parallel import parallel_calls
from devwidget.views.placement import tabulate_snapshot
from devwidget.views.timeline import make_timeline
from tests.views.builders import CPU, GPU0, GPU1, MIB, data_parallel, one_step, site, split_model, unregistered


def test_hops_of_one_line_are_one_group_and_the_dearest_is_first():
    hops = group_hops(one_step().moves)
    assert [(str(hop.source), hop.count, hop.bytes) for hop in hops] == [("cpu", 1, MIB), ("cuda:0", 4, 65536)]


def test_hops_of_one_line_are_joined_whatever_their_phase_and_direction():
    first = one_step().moves[0]
    others = (
        replace(first, phase="other"),
        replace(first, source=GPU1),
        replace(first, site=site(7)),
        replace(first, site=None),
    )
    joined = join_by_line(group_hops((first, *others)), lambda hop: hop.site or hop)
    assert [len(line) for line in joined] == [3, 1, 1]


def test_a_hop_of_backward_has_the_line_of_the_copy_whose_gradient_it_carries():
    first, second = one_step().moves[0], replace(one_step().moves[0], module="encoder", site=site(7), number=11)
    back = replace(first, source=GPU1, target=GPU0, module=None, phase="backward", site=site(99))
    hops = group_hops((first, second, replace(back, number=30), replace(back, number=31), replace(back, number=32)))
    told = {hop.number: (hop.modules, hop.site.line) for hop in hops if hop.phase == "backward"}
    assert told == {30: (("encoder",), 7), 31: (("decoder",), 40), 32: ((None,), 99)}
    others = replace(back, shape=(3, 3), number=30), replace(back, cause="reduce", number=31), replace(back, count=2, number=32)
    other = group_hops((first, *others))
    assert {hop.site.line for hop in other if hop.phase == "backward"} == {99}


def test_a_collapsed_row_knows_of_findings_and_hops_below():
    table = tabulate_snapshot(split_model())
    marks = make_overlay(table, one_step()).marks
    decoder, head = (marks[table.paths.index(path)] for path in ("decoder", "decoder.head"))
    assert (head.findings, head.severity) == ((0,), 3)
    assert (decoder.findings, decoder.findings_below, decoder.severity_below) == ((), (0,), 3)
    assert (decoder.hops, marks[0].hops, marks[0].hops_below) == (4, 0, 5)


def test_a_finding_also_marks_the_attribute_that_it_names():
    table = tabulate_snapshot(split_model())
    assert make_overlay(table, one_step()).marks[table.paths.index("encoder.attention.mask")].findings == (1,)


def test_a_finding_marks_the_attribute_that_its_fault_had_in_the_wrong_place():
    held = Held("encoder.attention", "mask", "attribute")
    stray = Operand("mask", "self.mask", (1024, 1024), "bool", CPU, MIB, stray=True, held=held)
    fault = replace(one_step().faults[0], operands=(stray,))
    finding = replace(unregistered(), also=(), explains=(fault.number,))
    table = tabulate_snapshot(split_model())
    marks = make_overlay(table, replace(one_step(), faults=(fault,), findings=(finding,)))
    assert marks.marks[table.paths.index("encoder.attention.mask")].findings == (0,)


def test_a_finding_outside_the_model_marks_no_row():
    trace = one_step()
    outside = replace(trace.findings[0], module=None)
    result = make_overlay(tabulate_snapshot(split_model()), replace(trace, findings=(outside,), moves=()))
    assert (result.marks, result.rows_of_findings) == ({}, [-1])


def test_flows_tell_where_data_came_in_and_went_out():
    table = tabulate_snapshot(split_model())
    assert make_overlay(table, one_step()).flows[table.paths.index("decoder")] == ((GPU0,), (GPU1,))


def test_a_parallel_call_adds_up_what_the_gather_point_holds():
    (call,) = parallel_calls(data_parallel(2))
    assert (call.samples, call.gather_point, call.gathered_bytes, call.crossed_bytes) == (63, GPU0, 63 * 40000, 31 * 40000)
    assert call.reduced_bytes == 2 * MIB
    assert [call.peak_on(device) for device in call.call.device_ids] == [9 * MIB, 6 * MIB]


def test_a_loop_over_batches_shows_its_last_call():
    first, last = data_parallel(3), data_parallel(3, samples=2)
    later = replace(last.parallel[0], number=2)
    replicas = (*first.replicas, *(replace(replica, call=2) for replica in last.replicas))
    (call,) = parallel_calls(replace(first, parallel=(*first.parallel, later), replicas=replicas))
    assert [replica.samples for replica in call.replicas] == [1, 1]
    assert (call.times, [str(device) for device in call.idle]) == (2, ["cuda:2"])


def test_bars_show_gpus_and_the_cpu_on_demand():
    memory = split_model().memory
    assert [bar.device for bar in memory_bars(memory)] == [GPU0, GPU1]
    assert [bar.device for bar in memory_bars(memory, with_cpu=True)] == [GPU0, GPU1, CPU]
    assert [bar.device for bar in memory_bars(memory[2:])] == [CPU]


def test_the_parts_of_a_bar_add_up_to_its_device():
    for bar in memory_bars(split_model().memory, with_cpu=True):
        assert sum(size for _, size in bar.parts) == bar.total


def test_a_series_has_one_value_for_each_point_and_runs_of_phases():
    first, second = memory_series(one_step())
    assert dict(first.parts)["activations"] == (0, 2 * MIB, 5 * MIB, MIB, MIB)
    assert [role for role, _ in second.parts] == ["parameters", "gradients", "activations"]
    assert first.phases == (("build", 0), ("forward", 10), ("backward", 30), ("optimizer", 40))
    assert (first.peak.number, first.peak.module) == (20, "decoder.head")


def computed(number, module, *inputs, output=None, phase="forward"):
    return OpEvent("addmm", module, phase, None, inputs, output or inputs[0], 1, number)


def parts(trace):
    """Each box with its path: where, from, to, how deep."""
    return [(box.path, str(box.lane), box.start, box.stop, box.level) for box in make_timeline(trace).boxes]


def ran(path, number, stopped, output, replica=-1):
    return ModuleEvent(path, "Part", (GPU0,), (output,), 1, 0.1, number=number, stopped=stopped, replica=replica)


def test_a_container_whose_parts_ran_on_several_devices_is_in_no_single_lane():
    whole = Trace(modules=(ran("", 0, 14, CPU), ran("lower", 2, 5, GPU0), ran("upper", 8, 11, GPU1)))
    assert parts(whole) == [
        ("", "None", 0, 14, 0), ("lower", "cuda:0", 2, 5, 0), ("upper", "cuda:1", 8, 11, 0)
    ]  # fmt: skip
    assert timeline_figure(make_timeline(whole))["words"] == "3 module calls, 0 hops, 2 devices"


def test_a_container_is_drawn_where_its_parts_are_and_any_other_module_where_its_result_is():
    trace = Trace(modules=(ran("block", 0, 9, CPU), ran("block.a", 2, 4, GPU0), ran("block.b", 6, 8, GPU0)))
    assert parts(trace) == [("block", "cuda:0", 0, 9, 0), ("block.a", "cuda:0", 2, 4, 1), ("block.b", "cuda:0", 6, 8, 1)]


def test_gradients_of_modules_are_boxes_where_memory_was_allocated_for_them():
    at = lambda number, module: MemoryPoint(number, "backward", module, None, 0)
    first = (at(44, "encoder.embed"), at(46, None))
    second = (at(40, "decoder.head"), at(42, "decoder"))
    curves = [replace(curve, points=points) for curve, points in zip(one_step().memory, (first, second), strict=True)]
    boxes = make_timeline(replace(one_step(), memory=tuple(curves))).boxes
    assert [(box.path, str(box.lane), box.start, box.stop, box.level) for box in boxes if box.is_gradient] == [
        ("decoder", "cuda:1", 40, 44, 0), ("decoder.head", "cuda:1", 40, 42, 1),
        ("encoder", "cuda:0", 44, 46, 0), ("encoder.embed", "cuda:0", 44, 46, 1),
    ]  # fmt: skip


def test_a_healed_move_and_its_fault_are_one_and_a_refusal_is_a_mark():
    refusal = Refusal(20, 4 * MIB, 15 * MIB, "forward", "decoder", None)
    moved = replace(one_step().moves[0], cause="healed", module="decoder.head", target=GPU1, number=12)
    curve = replace(one_step().memory[0], refused=(refusal,))
    lanes = make_timeline(replace(one_step(), moves=(moved,), memory=(curve,)))
    assert [(arrow.at, arrow.cross) for arrow in lanes.arrows] == [(12, lanes.crosses[0])]
    assert [(mark.at, mark.refusal) for mark in lanes.refusals] == [(20, refusal)]


def test_a_phase_in_which_nothing_is_drawn_is_empty_and_says_how_much_ran():
    ops = tuple(computed(number, None, GPU0, phase="optimizer") for number in range(60, 64))
    *_, last = make_timeline(replace(one_step(), ops=(*one_step().ops, *ops))).bands
    assert (last.phase, last.operators, last.is_empty) == ("optimizer", 4, True)


def test_a_wrapper_of_replicas_is_in_no_single_lane_and_they_are_on_theirs():
    replicas = (ran("module", 2, 8, GPU0, 0), ran("module", 3, 9, GPU1, 1))
    assert parts(Trace(modules=(ran("", 0, 12, GPU0), *replicas))) == [
        ("", "None", 0, 12, 0), ("module", "cuda:0", 2, 8, 0), ("module", "cuda:1", 3, 9, 0)
    ]  # fmt: skip


def test_a_container_in_a_replica_is_on_the_device_of_the_replica():
    sides = ((0, GPU0), (1, GPU1))
    calls = [
        ran(path, 2 + inner, 20 - inner, device, replica)
        for replica, device in sides
        for inner, path in enumerate(("m", "m.a"))
    ]
    boxes = make_timeline(Trace(modules=(ran("", 0, 30, GPU0), *calls))).boxes
    drawn = {(box.path, box.replica): box.lane for box in boxes}
    assert drawn == {("", -1): None, ("m", 0): GPU0, ("m.a", 0): GPU0, ("m", 1): GPU1, ("m.a", 1): GPU1}


def test_a_row_and_its_drawer_count_the_same_hops():
    first, *_ = one_step().moves
    elsewhere = replace(first, module="encoder", number=2)  # the same line, called in another module
    back = replace(first, source=GPU1, target=GPU0, module=None, phase="backward", site=site(99), number=40)
    table = tabulate_snapshot(split_model())
    drawn = make_overlay(table, replace(one_step(), moves=(*one_step().moves, elsewhere, back)))
    counts = {table.paths[row]: [*own.values()] for row, own in drawn.hops.items()}
    assert counts == {"encoder": [(1, 16384), (1, 16384)], "decoder": [(4, 65536)], "encoder.attention": [(1, MIB)]}
    assert all(drawn.marks[row].hops == sum(count for count, _ in own.values()) for row, own in drawn.hops.items())


def test_while_a_cell_runs_what_was_there_before_is_no_activation():
    before = split_model().memory
    first, *rest = before
    grown = [replace(first, activations=first.activations + 3 * MIB, free=first.free - 3 * MIB), *rest]
    bar, *_ = memory_bars(grown, before=before)
    assert dict(bar.parts)["running"] == 3 * MIB
    assert dict(bar.parts)["outside"] == first.activations
    freed, *_ = memory_bars([replace(first, activations=0), *rest], before=before)
    assert not {"running", "outside"} & dict(freed.parts).keys()


def test_bands_are_the_phases_in_the_order_of_their_first_events():
    phases = ((0, "forward"), (12, "loss"), (20, "backward"), (33, "optimizer"), (40, "other"))
    ops = tuple(OpEvent("add", None, phase, None, (GPU0,), GPU0, number=number) for number, phase in phases)
    bands = make_timeline(Trace(ops=ops)).bands
    assert [(band.phase, band.start, band.stop) for band in bands] == [
        ("forward", 0, 12), ("loss", 12, 20), ("backward", 20, 33), ("optimizer", 33, 40)
    ]  # fmt: skip


def test_a_loop_of_many_steps_has_no_bands():
    ops = tuple(OpEvent("add", None, ("forward", "loss")[n % 2], None, (GPU0,), GPU0, number=n) for n in range(60))
    assert make_timeline(Trace(ops=ops)).bands == ()


def test_an_empty_trace_gives_empty_views():
    assert make_timeline(Trace()).boxes == ()
    assert memory_series(Trace()) == ()
    assert parallel_calls(Trace()) == ()
    assert DeviceId("cpu") == CPU


def test_a_clock_tells_the_time_of_every_place_and_never_runs_backwards():
    ops = tuple(
        OpEvent("add", None, "forward", None, (GPU0,), GPU0, number=place, started=started)
        for place, started in ((2, 0.2), (4, 0.1), (8, 0.6))
    )
    clock = Clock(Trace(ops=ops, seconds=1.0))
    assert [round(clock.at(place), 3) for place in (2, 5, 6, 8, 9, 50)] == [0.2, 0.3, 0.4, 0.6, 1.0, 1.0]
    assert not Clock(Trace()).runs


def test_an_arrow_knows_its_line_and_a_cross_its_finding():
    trace = one_step()
    told = replace(trace, findings=(replace(trace.findings[0], explains=(13,)), trace.findings[1]))
    lanes = make_timeline(told)
    lines = group_hops(told.moves)
    assert [str(lines[arrow.hop].source) for arrow in lanes.arrows] == [str(arrow.move.source) for arrow in lanes.arrows]
    assert [(cross.finding, cross.headline) for cross in lanes.crosses] == [(0, told.findings[0].headline)]


def test_what_is_not_the_models_is_named_so_and_what_is_only_reserved_comes_last():
    first, *_ = memory_bars(split_model().memory)
    assert [part for part, _ in first.parts] == ["parameters", "gradients", "outside", "cache", "free"]
    assert (first.in_use, first.reserved, first.used) == (6 * MIB, 7 * MIB, 7 * MIB)


def test_a_bar_has_the_peak_of_this_trace_alone():
    before, after = memory_bars(split_model().memory), memory_bars(split_model().memory, one_step())
    assert [bar.peak for bar in before] == [0, 0], "what the device reports is of all its past"
    assert [bar.peak for bar in after] == [8 * MIB, 6 * MIB]
    curve = one_step().memory[1]
    idle = replace(curve, points=curve.points[:1] * 3)
    assert [bar.peak for bar in memory_bars(split_model().memory, replace(one_step(), memory=(idle,)))] == [0, 0]
