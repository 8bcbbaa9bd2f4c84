"""replica-state-lost: what a replica has not, or takes with it."""

from devwidget.records.fault_details import LostWrite, NoParameters
from tests.rules.builders import fault, findings, site

KIND = "replica-state-lost"


def lost(statement, detail, line=8, **more):
    return fault(what="replica", call="DataParallel.forward", module="", site=site(statement, line), target=None, error="",
                 detail=detail, **more)  # fmt: skip


def test_an_attribute_written_in_forward_is_one_finding(golden):
    (found,) = findings(lost("self.calls += 1", LostWrite("calls")))
    golden(f"{KIND}.txt", found)


def test_a_look_up_among_the_parameters_of_a_replica_is_one_finding(golden):
    (found,) = findings(lost("device = next(self.parameters()).device", NoParameters("head.weight")))
    golden(f"{KIND}-parameters.txt", found)
