"""What findings say is held against the trace in every test: a sentence that it does not bear out is found."""

import dataclasses

from devwidget.records.schema.message import Message
from tests.rules.builders import CPU, GPU0, fault, findings, operand, step
from tests.strict_sentences import refute

MET = fault(operand("x"), operand("h", CPU, stray=True))


def test_a_sentence_with_another_device_name_or_call_is_refuted():
    (found,) = findings(MET)
    trace = step(faults=(MET,))
    assert list(refute(trace, [found])) == []
    wrong = [
        Message("{name} was created on {device}", name="`h`", device=GPU0),
        Message("{name} is on {device}", name="`k[0]`", device=CPU),
        Message("`{call}` got tensors on {devices}", call="mul", devices="cpu and cuda:0"),
        Message("`{call}` got tensors on {devices}", call=MET.call, devices="cuda:0 and cuda:1"),
        Message(
            "{where}; the others are on {target}", where=Message("{name} is on {device}", name="`h`", device=CPU), target=CPU
        ),
    ]
    for sentence in wrong:
        assert len(list(refute(trace, [dataclasses.replace(found, notes=(sentence,))]))) > 0, sentence
