"""A plan as a page in the panel's design: the answer with one action, then what was asked of it. No script draws it."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.page.answers import draw_batches, draw_cards, draw_changes, draw_generation, draw_sizes
from devwidget.extras.plan.page.marks import draw_glyph, draw_percent, draw_prose
from devwidget.extras.plan.page.offers import draw_ask, draw_offer
from devwidget.extras.plan.page.step import draw_step
from devwidget.extras.plan.page.trust import draw_trust
from devwidget.extras.plan.records.answers import AskedSize, Changes, Fitted, Generation, LargestBatch, OnCards
from devwidget.extras.plan.records.plan import DevicePlan, Plan, questions_of
from devwidget.extras.plan.words.plan import answer_words, moment_words
from devwidget.language.speaking import language, said, say
from devwidget.records.device import DeviceId
from devwidget.records.schema.record import presents
from devwidget.report.page.assets import files_of_extra, static_text
from devwidget.report.style.palette import device_hue
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import code_word, row_words

STYLES = "base.css", "panel.css", *files_of_extra("plan", "plan.css")
# In a notebook, which holds every output that was ever shown.
_MOST_ROWS = 5
LOOKS: dict[Fit, tuple[str, str]] = {
    "fits": ("clean", "tried"),
    "fits by less": ("warning", "warning"),
    "does not fit": ("error", "error"),
}
"""Answer -> how the verdict looks, and its glyph."""


@presents("notebook", Plan)
def plan_in_notebook(plan: Plan) -> Markup:
    """The page as an output, with its style."""
    style = "\n".join(map(static_text, STYLES))
    return join_html(html_element("style", Markup(style)), draw_plan(plan, most_rows=_MOST_ROWS))


@presents("html", Plan)
def plan_page(plan: Plan) -> str:
    """The page as a file that stands alone, light or dark as its reader is."""
    title = html_element("title", f"{plan.model}: {answer_words(plan.fit)}")
    view = Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')
    head = html_element("head", view, title, html_element("style", Markup(static_text("page.css"))))
    style = html_element("style", Markup("\n".join(map(static_text, STYLES))))
    body = html_element("body", html_element("main", style, draw_plan(plan)))
    return f"<!DOCTYPE html>\n{html_element('html', head, body, lang=language())}\n"


def draw_plan(plan: Plan, most_rows: int = 0) -> Markup:
    """The page: header, verdict, and a tab for each question that was asked.

    Args:
        most_rows: of published figures of each kind, those that are farthest off; 0 for all.
    """
    # A group of radio buttons ends with its form; Enter in one would send it, but for a button that cannot.
    unsent = Markup('<button type="submit" disabled hidden></button>')
    parts = _draw_head(plan), _draw_verdict(plan), _draw_body(list(_list_pages(plan, most_rows))), unsent
    return html_element("form", *parts, class_="dw dw-panel dw-plan", **{"aria-label": say("plan")})


def draw_live_parts(plan: Plan) -> dict[str, str]:
    """The parts of the page between which a live one has its form; what was not asked has a button that asks."""
    body = _draw_body(list(_list_pages(plan, _MOST_ROWS, is_live=True)))
    return {"head": str(_draw_head(plan)), "verdict": str(_draw_verdict(plan, is_live=True)), "body": str(body)}


def _draw_body(pages: list[tuple[str, Markup]]) -> Markup:
    tabs = html_element(
        "div",
        *(_draw_tab(at, name) for at, (name, _) in enumerate(pages)),
        class_="dw-tabs",
        role="radiogroup",
        **{"aria-label": say("views")},
    )
    drawn = (html_element("section", page, class_=f"dw-page dw-page-{at}") for at, (_, page) in enumerate(pages))
    return join_html(tabs, *drawn)


def _draw_tab(at: int, name: str) -> Markup:
    checked = "" if at else " checked"
    pick = Markup(f'<input type="radio" name="dw-view" class="dw-pick dw-pick-{at}"{checked}>')
    return html_element("label", pick, name, class_="dw-tab")


def _list_pages(plan: Plan, most_rows: int, is_live: bool = False) -> Iterator[tuple[str, Markup]]:
    """Names and contents of the tabs; what was not asked has none, and on a live page one that asks."""
    yield say("Step"), draw_step(plan)
    for name, questions, drawn in _list_answers(plan):
        offers = [draw_offer(each) for each, answer in questions.items() if not _was_asked(plan, answer)] if is_live else []
        if drawn or offers:
            yield name, join_html(*drawn, *offers)
    yield say("How sure"), draw_trust(most_rows)


def _was_asked(plan: Plan, kind: type) -> bool:
    return any(isinstance(answer, kind) for answer in plan.answers)


def _list_answers(plan: Plan) -> Iterator[tuple[str, dict[str, type], list[Markup]]]:
    """Names of tabs, the questions whose answers are in them, and what is drawn of those."""
    asked = plan.answers
    yield say("Changes"), {"changes": Changes}, [draw_changes(each) for each in asked if isinstance(each, Changes)]
    batches = [draw_batches(each) for each in asked if isinstance(each, LargestBatch)]
    sizes = [draw_sizes(each) for each in asked if isinstance(each, Fitted)]
    yield say("Batch × length"), {"batch": LargestBatch, "sizes": Fitted}, batches + sizes
    cards = [draw_cards(each, size_words(plan) or _describe_step(plan)) for each in asked if isinstance(each, OnCards)]
    yield say("Cards"), {"cards": OnCards}, cards
    yield say("Generation"), {}, [draw_generation(each) for each in asked if isinstance(each, Generation)]


def _describe_step(plan: Plan) -> str:
    return row_words(map(code_word, plan.phases))


def _draw_head(plan: Plan) -> Markup:
    gpus = count_words(len(plan.devices), "GPU")
    where = say("{gpus} that are not here", gpus=gpus) if len(plan.devices) > 1 else say("1 GPU that is not here")
    facts = [size_words(plan), plan.card, code_word(plan.placement), _describe_step(plan), where]
    told = html_element("span", *(html_element("span", fact) for fact in facts if fact), class_="dw-facts dw-soft")
    meters = html_element(
        "span", *(draw_meter(gpu.device, gpu.on_card, gpu.capacity) for gpu in plan.devices), class_="dw-chips"
    )
    name = html_element("strong", plan.model, class_="dw-title", title=plan.model)
    return html_element("div", html_element("div", name, told, meters, class_="dw-headline", style="flex: 1"), class_="dw-top")


def size_words(plan: Plan) -> str:
    """Batch and length of the step, as far as they are known here."""
    questions = questions_of(plan)
    setting = questions.setting if questions is not None else AskedSize()
    if setting.batch and setting.length:
        return say("batch {batch} × length {length}", batch=f"{setting.batch:,}", length=f"{setting.length:,}")
    return say("batch {batch}", batch=f"{setting.batch:,}") if setting.batch else ""


def draw_meter(device: DeviceId, on_card: int, capacity: int) -> Markup:
    """How full a GPU is, beside its name."""
    share = on_card / max(capacity, 1)
    used = html_element("i", class_="dw-meter-peak", style=f"width:{draw_percent(min(share, 1))}")
    over = html_element("i", class_="dw-meter-refused") if share > 1 else Markup("")
    sizes = {"size": format_bytes(on_card), "capacity": format_bytes(capacity)}
    words = say("{size} of {capacity}", **sizes)
    title = say("{device}: {size} of {capacity}", device=device, **sizes)
    bar = html_element("span", used, over, class_="dw-meter-bar", role="img", **{"aria-label": title})
    told = html_element("span", words, class_="dw-meter-words" if share <= 1 else "dw-meter-words dw-over")
    dot = html_element("span", class_="dw-dot", **{"aria-hidden": "true"})
    name = html_element("span", str(device), class_="dw-meter-name")
    return html_element("span", dot, name, bar, told, class_="dw-meter", style=f"--dw-hue:{device_hue(device)}")


def _draw_verdict(plan: Plan, is_live: bool = False) -> Markup:
    look, glyph = LOOKS[plan.fit]
    device = plan.tightest
    told = (
        html_element("b", verdict_words(plan, device)),
        html_element("span", draw_prose(where_words(plan, device)), class_="dw-soft"),
    )
    sentence = html_element("p", *told, class_="dw-sentence")
    tried, action = _choose_action(plan)
    beside = html_element("span", tried, class_="dw-tried") if tried else Markup("")
    line = html_element("div", draw_glyph(glyph), sentence, beside, _draw_action(action, is_live), class_="dw-verdict-line")
    part = html_element("div", line, class_=f"dw-verdict-part dw-verdict-{look}")
    return html_element("section", part, class_="dw-verdict", **{"aria-label": say("verdict")})


_ASKS = {"plan.cheapest_change()": "changes", "plan.largest_batch()": "batch", "plan.on_cards()": "cards"}
"""What is written -> the question that a live page asks in its place."""


def _draw_action(action: str, is_live: bool) -> Markup:
    if not action:
        return Markup("")
    if is_live and action in _ASKS:
        return draw_ask(_ASKS[action], "dw-primary")
    return html_element("code", action, class_="dw-action")


def verdict_words(plan: Plan, device: DevicePlan) -> str:
    """`Fits an A100-40GB with 3.7 GiB to spare:`."""
    facts = {"size": format_bytes(abs(device.capacity - device.on_card)), "where": plan.card or str(device.device)}
    if len(plan.devices) > 1:
        facts["where"] = say("{device} of {gpus}", device=device.device, gpus=count_words(len(plan.devices), "GPU"))
    if plan.fit == "does not fit":
        return say("Needs {size} more than {where} has:", **facts)
    if plan.fit == "fits by less":
        return say("Fits {where} by {size}, less than plans were off on real cards:", **facts)
    return say("Fits {where} with {size} to spare:", **facts)


def where_words(plan: Plan, device: DevicePlan) -> str:
    """How full it is, and when."""
    sizes = {"size": format_bytes(device.on_card), "capacity": format_bytes(device.capacity)}
    taken = say("{size} of {capacity}", **sizes)
    moment = moment_words(plan, device.peak_at if device.fits else device.tips_over or device.peak_at)
    if not moment:
        return taken
    if not device.fits:
        return row_words((taken, say("{moment} is the first to exceed it", moment=moment)))
    return row_words((taken, say("the peak is in {moment}", moment=moment)))


def _choose_action(plan: Plan) -> tuple[str, str]:
    """What is known of the next thing to do, and what to write for it."""
    asked = {type(each): each for each in plan.answers}
    changes, batch = asked.get(Changes), asked.get(LargestBatch)
    if plan.fit != "fits":
        if isinstance(changes, Changes) and changes.cheapest is not None:
            facts = {"change": said(changes.cheapest.what), "size": format_bytes(changes.cheapest.on_card)}
            if code := changes.cheapest.code:  # with the words, too, the verdict would take three lines
                return say("planned: {size}, fits", **facts), code
            return say("fits with {change}, planned: {size}", **facts), ""
        if not isinstance(changes, Changes):
            return say("what would make it fit:"), "plan.cheapest_change()"
    if isinstance(batch, LargestBatch):
        action = "" if OnCards in asked else "plan.on_cards()"
        return say("the largest batch that fits by more than plans were off: {size}", size=batch.safe_size), action
    return say("how far the batch may grow:"), "plan.largest_batch()"
