"""`%devwidget watch` in a shell."""

from devwidget import magics
from tests.panel.test_magics import printed
from tests.panel.test_magics import shell as shell


def test_a_run_is_watched_from_cell_to_cell_until_that_is_ended(shell):
    shell.run_cell("import torch\nnet = torch.nn.Linear(2, 2)\ntrainer = torch.optim.SGD(net.parameters(), 0.1)")
    assert "no run is being watched" in printed(lambda: shell.run_line_magic("devwidget", "watch"))
    assert printed(lambda: shell.run_line_magic("devwidget", "watch net")).count("\n") == 1
    for _ in range(2):
        shell.run_cell("net(torch.ones(1, 2)).sum().backward()\ntrainer.step()")
    assert "Watched run of Linear: 2 steps" in printed(lambda: shell.run_line_magic("devwidget", "watch"))
    assert "Watched run of Linear: 2 steps" in printed(lambda: shell.run_line_magic("devwidget", "watch off"))
    net = shell.user_ns["net"]
    assert not net._forward_pre_hooks
    assert not shell.user_ns["trainer"]._optimizer_step_post_hooks


def test_a_model_without_an_optimizer_is_watched_and_unloading_ends_it(shell):
    shell.run_cell("import torch\nnet = torch.nn.Linear(2, 2)")
    assert "a step ends with the forward pass" in printed(lambda: shell.run_line_magic("devwidget", "watch net"))
    magics.unload_ipython_extension(shell)
    assert not shell.user_ns["net"]._forward_pre_hooks
