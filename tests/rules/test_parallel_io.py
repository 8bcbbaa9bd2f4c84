"""parallel-io: what cannot be cut into pieces, or joined from them."""

from devwidget.records.fault_details import ScalarOutputs, TooFewSamples, WrongAxis
from tests.rules.builders import GPU0, GPU1, chain, fault, findings, is_silent, operand, site

KIND = "parallel-io"


def given(detail, *operands, where=None, error="", healed=True):
    return fault(*operands, what="io", call="DataParallel.forward", module="", site=where, error=error, healed=healed,
                 target=None, detail=detail)  # fmt: skip


def test_scalars_that_are_gathered_are_one_finding(golden):
    line = site("return F.cross_entropy(self.head(x), y)", 9)
    (found,) = findings(given(ScalarOutputs("Net", 2), where=line))
    golden(f"{KIND}.txt", found)


def test_an_input_that_is_cut_along_another_axis_than_the_batch_is_one_finding(golden):
    hidden = operand("input", shape=(2, 8, 4), expression="", stray=True, birth=site("h = torch.zeros(2, 8, 4)", 3, "train"))
    error = "RuntimeError: Expected hidden size (2, 4, 4), got [1, 8, 4]"
    line = site("out, h = self.rnn(x, h)", 8)
    (found,) = findings(given(WrongAxis(8, 0), hidden, where=line, error=error, healed=False))
    golden(f"{KIND}-axis.txt", found)


def test_fewer_samples_than_gpus_beside_plain_values_is_one_finding(golden):
    small = operand("input", shape=(1, 4), expression="", stray=True, birth=site("x = torch.ones(1, 4)", 3, "train"))
    error = "TypeError: forward() missing 1 required positional argument: 'x'"
    (found,) = findings(given(TooFewSamples(1, 2), small, error=error))
    golden(f"{KIND}-samples.txt", found)


def test_the_traffic_of_the_wrapper_itself_is_silent():
    assert is_silent(KIND, crossings=chain(GPU0, GPU1))
