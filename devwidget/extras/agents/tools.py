"""Tools for assistants: `jupyter-server-mcp` registers them in a Jupyter server, which asks the kernel where the model is.

Neither half imports at the top what the other process may lack.
"""

from __future__ import annotations

import ast
from typing import Any

SECONDS = 600
"""How long a tool waits: a running cell comes first, then up to eight runs of the step."""

TOOLS = [f"{__name__}:{name}" for name in ("explain_last_error", "trace_model", "try_edit", "will_it_fit")]
"""The entry point `jupyter_server_mcp.tools`."""


async def explain_last_error(notebook: str = "") -> str:
    """Explain the last PyTorch device, dtype or out-of-memory error of a notebook, with the line and the edit. Runs nothing.

    Args:
        notebook: Path of the notebook; needed only if several are running.
    """
    return await _ask_kernel(notebook, "explain")


async def trace_model(
    model: str, batch: str, loss_fn: str = "", target: str = "", optimizer: str = "", notebook: str = ""
) -> str:
    """Run one training step of a model in a notebook and report misplaced tensors, needless transfers and syncs, with edits
    that were run. Everything is restored.

    Args:
        model: The variable of the model.
        batch: An expression for the batch, such as `batch` or `next(iter(loader))`.
        loss_fn: An expression for the loss function; "" to run forward alone.
        target: An expression for the target.
        optimizer: The variable of the optimizer.
        notebook: Path of the notebook; needed only if several are running.
    """
    step = {"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer}
    return await _ask_kernel(notebook, "trace", **step)


async def try_edit(
    diff: str, model: str, batch: str = "", loss_fn: str = "", target: str = "", optimizer: str = "", notebook: str = ""
) -> str:
    """Try an edit before you propose it: run the step twice with it, in memory, and compare values, gradients and devices with
    the repaired step. Cells and files are not written.

    Args:
        diff: A unified diff of cells or files. Line numbers may be missing.
        model: The variable of the model; or of a function that builds the step and returns `(model, batch)` or a dict of the
            arguments, which an edit of a constructor or of the batch needs.
        batch: As for `trace_model`; "" with a function.
        loss_fn: As for `trace_model`.
        target: As for `trace_model`.
        optimizer: As for `trace_model`.
        notebook: Path of the notebook; needed only if several are running.
    """
    step = {"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer}
    return await _ask_kernel(notebook, "try_edit", diff=diff, **step)


async def will_it_fit(
    model: str, batch: str, card: str = "", loss_fn: str = "", target: str = "", optimizer: str = "", notebook: str = ""
) -> str:
    """Predict the peak memory of one step on a GPU that need not be there, and whether it fits. The model does not run.

    Args:
        model: The variable of the model.
        batch: As for `trace_model`.
        card: A GPU, such as `A100 80GB` or `RTX 4090`; "" to predict allocated memory alone.
        loss_fn: As for `trace_model`.
        target: As for `trace_model`.
        optimizer: The variable of the optimizer, or an expression for its class, such as `torch.optim.AdamW`.
        notebook: Path of the notebook; needed only if several are running.
    """
    step = {"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer}
    return await _ask_kernel(notebook, "plan", card=card, **step)


async def _ask_kernel(notebook: str, question: str, **texts: str) -> str:
    """Evaluate the answer in the kernel. It leaves neither variables, nor history, nor output."""
    from jupyter_server.serverapp import ServerApp

    server: Any = ServerApp.instance()
    sessions = await server.session_manager.list_sessions()
    running = {session["path"]: session["kernel"]["id"] for session in sessions}
    fitting = [path for path in running if path.endswith(notebook)]
    if len(fitting) != 1:
        return f"running notebooks: {', '.join(running) or 'none'}; pass one of them as `notebook`"
    client = server.kernel_manager.get_kernel(running[fitting[0]]).client()
    client.start_channels()
    try:
        expression = f"__import__({__name__!r}, fromlist=['answer']).answer({question!r}, {texts!r})"
        reply = await client.execute("", silent=True, user_expressions={"answer": expression}, reply=True, timeout=SECONDS)
    except TimeoutError:
        return f"the kernel of {fitting[0]} did not answer in {SECONDS} s: a cell may be running"
    finally:
        client.stop_channels()
    answer = reply["content"].get("user_expressions", {}).get("answer", {"ename": "no answer", "evalue": "the kernel was busy"})
    if "data" not in answer:
        return f"{answer['ename']}: {answer['evalue']}"
    return str(ast.literal_eval(answer["data"]["text/plain"]))


def answer(question: str, texts: dict[str, str]) -> str:
    """Return the answer of the kernel. `texts` has expressions for the arguments of the step, and the diff."""
    from devwidget.records.errors import DevwidgetError

    try:
        found: str = _find_answer(question, **texts)._repr_llm_()
    except DevwidgetError as error:
        return str(error)
    return found


def _find_answer(question: str, diff: str = "", card: str = "", **texts: str) -> Any:
    import devwidget
    from devwidget.live_model import evaluate_in_notebook

    step = {name: evaluate_in_notebook(text, name) for name, text in texts.items() if text.strip()}
    match question:
        case "explain":
            return devwidget.explain()
        case "trace":
            return devwidget.trace(**step, name=texts["model"].strip())
        case "plan":
            return devwidget.plan(**step, card=card or None)
    return devwidget.try_edit(diff, **step)
