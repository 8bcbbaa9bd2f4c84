"""The commands. Each returns its exit status, or the exception with which the user's program ended."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import itertools
import os
import pathlib
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, get_args

from devwidget import extras
from devwidget.cli import user_program
from devwidget.records.errors import DevwidgetError, PlacementError, UnreadableError, nearest
from devwidget.records.finding import Edit, Finding, Severity
from devwidget.records.schema.record import Record
from devwidget.records.site import cell_label
from devwidget.records.trace import Trace
from devwidget.report.writers import find_writer, list_formats

EXAMPLE = 'def step(): return model, batch    # or {"model": model, "batch": batch, "loss_fn": loss_fn, ...}'


def make_arguments(name: str) -> dict[str, Any]:
    """Return the arguments that a function of the user returns.

    Args:
        name: `module:function` or `file.py:function`.

    Raises:
        DevwidgetError: If the function does not exist, or returns neither a model and a batch nor a dict.
    """
    where, _, function = name.rpartition(":")
    if not where:
        raise DevwidgetError(
            f"{name!r} is not of the form module:function",
            instead="module:function, such as train:step or train.py:step",
        )
    made = _find_function(_load_module(where), where, function)()
    if isinstance(made, Mapping):
        return dict(made)
    return _name_pair(made, name)


def _load_module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise  # of a module that this one imports
            raise DevwidgetError(
                f"there is no module {where} in {os.getcwd()} or on Python's path",
                instead="module:function, such as train:step or train.py:step",
            ) from None
    path = os.path.abspath(where)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise DevwidgetError(f"there is no file {where}")
    sys.path.insert(0, os.path.dirname(path))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _find_function(module: ModuleType, where: str, name: str) -> Callable[[], Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise DevwidgetError(
            f"{where} has no function `{name}`{nearest(name, vars(module))}",
            instead=EXAMPLE,
        )
    return found  # type: ignore[no-any-return]


def _name_pair(made: Any, name: str) -> dict[str, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise DevwidgetError(f"{name} returned a `{type(made).__name__}`, not a model and a batch", instead=EXAMPLE)
    return {"model": made[0], "batch": made[1]}


FINE, FOUND, FAILED = 0, 1, 2
FILES = {
    "save": "save the trace for `show`, `html` and `compare`",
    "html": "write the report as one HTML page",
    **{name: find_writer(name).purpose for name in list_formats()},
}
"""Options that write a file, with their help."""
VERIFY = {"auto": "auto", "yes": True, "no": False}
"""Values of `--verify`, and the value that `trace` takes."""
FORMATS = ("text", *list_formats())


def run_program(options: Namespace) -> int | BaseException:
    """Run a program as Python would, and report on it. As one rank of several, answer queries instead."""
    if options.otherwise is not None:
        return options.otherwise(options)  # type: ignore[no-any-return]
    if options.target in LAUNCHERS:
        return _run_launcher(options)
    if any(_rank_line()) and not _asks_for_a_trace(options):  # the reports of many ranks would mix in one terminal
        return _serve_rank(options)
    from devwidget import api

    process = os.getpid()
    virtual_gpus(options).__enter__()  # until the process ends: threads and exit handlers of the program may still use them
    recording = api.record(heal=options.heal, allow=options.allow, portable=options.portable)
    ended = run_inside(recording, options)
    if os.getpid() == process:  # not in a child that the program has forked
        trace = _verify_portable(recording.trace, options)
        told = dataclasses.replace(trace, error=trace.error.partition(":")[0])  # Python has said the rest
        report_run(told, _writing_line(told, options))
        _write_files(trace, options)
    return choose_status(ended, recording.trace.findings, options)


def _verify_portable(trace: Trace, options: Namespace) -> Trace:
    if not options.portable or options.module:
        return trace
    home = extras.need_home("rules", "portable", "--portable")
    return home.verify_script(trace, options.target, options.args)  # type: ignore[no-any-return]


LAUNCHERS = (
    *("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch"),
    *("accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
)
"""Scripts and modules that start other processes and have no tensors themselves."""


def _run_launcher(options: Namespace) -> int:
    """Run a program that starts processes with virtual GPUs; it has nothing to report itself."""
    for name in ("heal", "fail_on", "portable", "allow", *FILES):
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise DevwidgetError(
                f"{options.target} only starts other processes and has no tensors, so {option} does not apply",
                instead=f"{options.target} [...] -m devwidget run {option} [...] train.py",
            )
    main = load_program(options)
    virtual_gpus(options).__enter__()
    main()
    return FINE


def load_program(options: Namespace) -> user_program.Program:
    """Return the program that the command line names, ready to run."""
    return (user_program.load_module if options.module else user_program.load_script)(options.target, options.args)


def run_inside(watching: contextlib.AbstractContextManager[object], options: Namespace) -> BaseException | None:
    """Run the program inside a context, and show how it ended as Python does.

    Returns:
        The exception that ended the program, `SystemExit` included; None if it ran to its end.
    """
    ended: BaseException | None = None
    main = load_program(options)
    user_program.show_exceptions_of_threads()
    try:
        with watching:
            try:
                main()
            except SystemExit as error:  # the usual end of a program, not a failure
                ended = error
    except BaseException as error:
        ended = error
        user_program.show_exception(error)
    return ended


def report_run(told: Record, more: Iterable[str] = ()) -> None:
    """Print a report below the program's output."""
    user_program.flush_output()
    user_program.report_text("\n".join(("", *_rank_line(), str(told), *more)))


def choose_status(ended: BaseException | None, findings: Iterable[Finding], options: Namespace) -> int | BaseException:
    """Return the exit status: that of the program, or 1 if it succeeded with findings that fail."""
    if ended is not None and not (isinstance(ended, SystemExit) and ended.code in (None, 0)):
        return ended
    fails = _severities_from(options.fail_on) if options.fail_on else ()
    return FOUND if any(finding.severity in fails for finding in findings) else FINE


def _writing_line(trace: Trace, options: Namespace) -> Iterator[str]:
    """Return the command that writes the edits of a report to files."""
    if not any(finding.fixes[0].edits for finding in _choose_findings(trace.findings, None)):
        return
    if options.save is not None:
        yield f"to write its fixes, run: python -m devwidget fix apply {options.save}"
    else:
        yield "to write its fixes, run with --save trace.json, then: python -m devwidget fix apply trace.json"


def _rank_line() -> Iterator[str]:
    """Yield the line that names the rank of a report, if a launcher such as torchrun started several ranks."""
    from devwidget.capture.process_rank import rank_of_environment

    found = rank_of_environment()
    if found is not None and found[1] > 1:
        yield f"rank {found[0]} of {found[1]}"


def _asks_for_a_trace(options: Namespace) -> bool:
    if any(getattr(options, name) is not None for name in FILES):
        return True
    chosen = (options.heal, options.gpus, options.allow, options.portable, options.fail_on)
    return any(chosen)


def _serve_rank(options: Namespace) -> int:
    serve = extras.need_home("names", "serve", "devwidget.serve").serve

    virtual_gpus(options).__enter__()
    main = load_program(options)
    agent = serve()
    print(agent, file=sys.stderr)
    with agent:
        main()
    return FINE


def check_step(options: Namespace) -> int:
    """Trace one step with what the user's function returns, and report on it."""
    from devwidget import api

    chosen: dict[str, Any] = {}
    if options.verify is not None:
        chosen["verify"] = VERIFY[options.verify]
    if options.portable:
        chosen["portable"] = True

    def check_made(step: dict[str, Any]) -> Trace:
        judged = {"fail_on": _severities_from(options.fail_on), "allow": options.allow, "baseline": options.baseline}
        return api.check(**{**step, **chosen}, **judged, progress=_tell_phase if sys.stderr.isatty() else None)

    status, trace = FINE, None
    try:
        with virtual_gpus(options):
            trace = run_subject(options.subject, check_made)
    except PlacementError as error:
        status, trace = FOUND, error.trace
    if trace is None:
        return FAILED
    if sys.stderr.isatty():
        _tell_phase("")
    print(trace)
    _write_files(trace, options)
    return status


def show_record(options: Namespace) -> int:
    """Print a saved record as text, or a trace in another format."""
    from devwidget.records.trace import Trace

    record = load_record(options.file, object if options.format == "text" else Trace)
    print(_record_text(record, options.format))
    return FINE


def write_page(options: Namespace) -> int:
    """Write a saved record as an HTML page."""
    try:
        with refuse_unwritable():
            load_record(options.file).to_html(options.out)
    except NotImplementedError as error:
        raise DevwidgetError(
            f"{options.file.name}: {error}",
            instead=f"python -m devwidget show {options.file.name}",
        ) from None
    return FINE


def compare_records(options: Namespace) -> int:
    """Compare two saved traces."""
    from devwidget.records.trace import Trace
    from devwidget.views.compare import compare_traces

    before, after = (load_record(file, Trace) for file in (options.before, options.after))
    found = compare_traces(before, after)
    print(found)
    if found.new or (found.error_after and not found.error_before):
        return FOUND
    return FINE


_COPIED_BYTES = 64 << 20


def check_copies(options: Namespace) -> int:
    """Copy random bytes from each GPU to each other one, and report the pairs whose copies arrive corrupted."""
    with virtual_gpus(options):
        wrong = list(_list_corrupting())
    for source, target in wrong:
        print(f"{source} -> {target}: copies arrive corrupted. Disable IOMMU or ACS, or copy through the host.")
    if wrong:
        return FOUND
    print("All copies between GPUs arrive unchanged.")
    return FINE


def _list_corrupting() -> Iterator[tuple[str, str]]:
    import torch

    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if len(gpus) < 2:
        raise DevwidgetError("there are no two GPUs to copy between")
    random = torch.randint(256, (_COPIED_BYTES,), dtype=torch.uint8)
    for source, target in itertools.permutations(gpus, 2):
        arrived = random.to(source).to(target)
        if not torch.equal(arrived.cpu(), random):
            yield source, target


def load_record(file: pathlib.Path, kind: type = object) -> Any:
    """Load a record from a file.

    Raises:
        DevwidgetError: If the file contains a record of another kind.
    """
    from devwidget.records.loading.other_files import open_file  # not `api`, which waits for torch

    try:
        record = open_file(file)
    except UnreadableError as error:
        what = f"{file.name} cannot be read: {error.what}"
        raise DevwidgetError(what, why=error.why, instead=error.instead) from None
    except (OSError, ValueError) as error:
        raise DevwidgetError(f"{file.name} cannot be read: {error}") from None
    if not isinstance(record, kind):
        raise DevwidgetError(f"{file.name} contains a {type(record).__name__}, not a {kind.__name__}")
    return record


def run_subject(
    name: str,
    run: Callable[[dict[str, Any]], Any],
    instead: contextlib.AbstractContextManager[object] | None = None,
) -> Any:
    """Run the user's function and pass its result on; None if their code raised, which is shown.

    Args:
        name: Name of the function, with its module.
        run: Calls it.
        instead: Virtual GPUs on which to retry if the function needs GPUs and the machine has none.
    """
    from devwidget import api

    try:
        return run(make_arguments(name))
    except DevwidgetError:
        raise
    except Exception as error:
        if instead is not None and api.is_about_placement(error):
            with instead:
                return run_subject(name, run)
        traceback.print_exception(error)
        if api.is_about_placement(error):
            print(f"\n{api.explain(error)}", file=sys.stderr)
        return None


def virtual_gpus(options: Namespace) -> contextlib.AbstractContextManager[object]:
    """Return the requested virtual GPUs, else those that the environment names, if any."""
    from devwidget import api, gpus

    if not options.gpus and (options.memory or options.card):
        raise DevwidgetError("--memory and --card need --gpus", instead="--gpus 2 --memory 16GiB, or --gpus 2 --card A100-80GB")
    if options.gpus:
        return api.simulate(options.gpus, options.memory, card=options.card)
    return gpus.inherited() or contextlib.nullcontext()


def _severities_from(least: str) -> tuple[Severity, ...]:
    known: tuple[Severity, ...] = get_args(Severity)
    return known[: known.index(least) + 1]


@contextlib.contextmanager
def refuse_unwritable() -> Iterator[None]:
    """Raise `DevwidgetError` if a file of devwidget cannot be written: the program is not at fault."""
    try:
        yield
    except OSError as error:
        raise DevwidgetError(f"{error.filename} cannot be written: {error.strerror}") from None


@refuse_unwritable()
def _write_files(trace: Trace, options: Namespace) -> None:
    if options.save is not None:
        trace.save(options.save)
    if options.html is not None:
        trace.to_html(options.html)
    for form in FORMATS[1:]:
        file = getattr(options, form)
        if file is not None:
            file.write_bytes(f"{_record_text(trace, form)}\n".encode())


def _record_text(record: Any, form: str) -> str:
    if form == "text":
        return str(record)
    return find_writer(form).write(record, ".")


def _tell_phase(words: str) -> None:
    """Show the phase that runs, on one line of a terminal."""
    with contextlib.suppress(OSError):  # a terminal that went away
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def apply_fixes(options: Namespace) -> int:
    """Write the first edit of each finding, with a backup of each file. Writes nothing if one file cannot be written."""
    from devwidget import api

    edits = api.edits_by_file(_choose_findings(load_record(options.file, Trace).findings, options.kind))
    if not edits:
        print(f"no finding in {options.file.name} has a fix to write")
        return FINE
    _refuse_cells(edits)
    api.refuse_edits(edits)
    for changes in edits.values():
        print("\n".join(edit.diff() for edit in changes))
    if not options.yes and not _is_agreed(edits):
        print("nothing was written")
        return FOUND
    for file, changes in edits.items():
        print(f"{file} was written; the original is in {api.write_edits(file, changes)}")
    return FINE


def _choose_findings(findings: Iterable[Finding], kind: str | None) -> list[Finding]:
    """Return the findings, optionally of one kind, whose first fix can be written without a decision of the user."""
    chosen = []
    for finding in findings:
        is_decided = bool(finding.fixes) and finding.fixes[0].confidence != "choice"
        if is_decided and kind in (None, finding.kind):
            chosen.append(finding)
    return chosen


def _refuse_cells(edits: Mapping[str, list[Edit]]) -> None:
    cell = next(filter(None, map(cell_label, edits)), None)
    if cell:
        raise DevwidgetError(f"{cell} is a notebook cell, not a file", instead="%devwidget fix apply")


def _is_agreed(edits: Mapping[str, list[Edit]]) -> bool:
    """Return whether the user agrees on the input stream; without input they do not."""
    print(f"write these changes to {', '.join(edits)}? [y/N] ", end="", flush=True)
    answer = sys.stdin.readline().strip().lower()
    if not answer:
        print()
    return answer in ("y", "yes")
