"""`%devwidget watch`: watch a run across cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devwidget.language.speaking import say
from devwidget.magics import evaluate_model, split_line
from devwidget.records.schema.message import Message

if TYPE_CHECKING:
    from devwidget.extras.watch.watch import Watch

LINES = {
    "%devwidget watch MODEL [OPTIMIZER]": Message("watch the steps of a model in all following cells, and report findings"),
    "%devwidget watch off": Message("stop watching; `%devwidget watch` alone shows the progress"),
}
"""The lines of the magic and what they do."""


class Magic:
    """The magic `%devwidget watch` in one shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._run: Watch | None = None
        self._name = ""

    def run(self, words: str) -> None:
        """Start or stop watching a run across cells, or show its progress."""
        if words in ("", "off", "status"):
            if self._run is None:
                print(say("no run is being watched; start with {line}", line="%devwidget watch model optimizer"))
                return
            if words == "off":
                self.end()
            print(self._run)
            return
        from devwidget import api
        from devwidget.extras.watch.api import watch

        expression, of_optimizer = split_line(words)
        model = evaluate_model(self.shell, expression)
        if of_optimizer:
            optimizer = evaluate_model(self.shell, of_optimizer)
        else:
            optimizer = api.find_optimizer(model)
        run = watch(model, optimizer)
        self.end()
        self._run, self._name = run.__enter__(), expression
        self.shell.events.register("post_run_cell", self._follow_name)
        print(say("watching the steps of {model}; {line} stops it", model=expression, line="`%devwidget watch off`"))
        if optimizer is None:
            print(say("no optimizer given: a step ends with the forward pass"))

    def end(self) -> None:
        """Remove the hooks of the watched run."""
        if self._run is not None and self._run.inside:
            self.shell.events.unregister("post_run_cell", self._follow_name)
            self._run.__exit__(None, None, None)

    def _follow_name(self, result: Any = None) -> None:
        """End a run if the user's variable refers to another model; the run would keep the old one alive."""
        name, run = self._name, self._run
        if run is None or not run.inside or not name.isidentifier() or run.is_of(self.shell.user_ns.get(name)):
            return
        self.end()
        if name not in self.shell.user_ns:
            print(say("`{name}` was deleted, so its watched run has ended", name=name))
            return
        facts = {"name": name, "line": f"`%devwidget watch {name}`"}
        print(say("`{name}` is bound to a new object, so its watched run has ended. {line} watches the new one", **facts))
