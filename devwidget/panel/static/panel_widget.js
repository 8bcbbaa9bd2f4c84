// The panel: header, form, verdict, tabs; it composes the tree widget and asks Python through the control widget.
import { comparedSection } from "./compared.js";
import { ask, h, keepKeys, prose, watchKernel } from "./dom.js";
import { Figure, loadPlotly } from "./figure.js";
import { Inputs, headline, menu, save } from "./header.js";
import { findingsView } from "./findings.js";
import { memorySection } from "./memory.js";
import { Picture, callSection, spreadSection, wordList } from "./devices.js";
import { hopTable, waitTable } from "./tables.js";
import { saveAs } from "./pictures.js";
import { SECTIONS } from "./sections.js";
import { openInSide } from "./side_bar.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { Verdict } from "./verdict.js";
import { say, spoken, word } from "./words.js";

const TABS = [word("Modules"), word("Findings"), word("Devices"), word("Trace"), word("Memory")];
const NO_GPU = word("No GPU found. To simulate GPUs, run `import devwidget; devwidget.simulate(2).start()` and build the model again.");

// What an empty tab will show, and how to get there.
function howTo(what, names) {
  const batch = names?.length ? say("such as `{name}`", { name: names[0] }) : say("a variable, or an expression such as `next(iter(loader))`");
  return say("No trace yet. Enter a batch above ({batch}) and press Trace batch to see {what}.", { what, batch });
}

async function render({ model, el, host, signal }) {
  const ready = (name) => (model.get(name) ? host.getModel(model.get(name)) : null);
  const [control, tree, live, code] = await Promise.all(["control", "tree", "live", "plotly"].map(ready));
  const plotly = () => (code ? loadPlotly(code) : Promise.reject(new Error(say("plotly.js is not loaded"))));
  const figures = [];
  const figure = (name, clicked) => figures[figures.push(new Figure(plotly, name, clicked)) - 1];
  const memory = figure("dw-memory");
  let withCpu = false;
  let hasRestarted = false;

  const title = h("div", { class: "dw-headline" });
  const inputs = new Inputs({ trace, cancel });
  const status = h("div", { class: "dw-status", role: "status", "aria-live": "polite" });
  const printed = h("details", { class: "dw-printed", open: true, hidden: true });
  const banner = h("div", { class: "dw-banner", role: "alert", hidden: true });
  const hint = h("p", { class: "dw-soft dw-no-gpu", hidden: true }, ...prose(say(NO_GPU)));
  const cpu = h("button", { class: "dw-plain", type: "button", "aria-pressed": "false", onclick: () => { withCpu = !withCpu; drawMemory(); } }, say("show cpu"));
  const tabs = new Tabs([...TABS, ...SECTIONS.flatMap(({ tab }) => tab ?? [])], () => figures.forEach((each) => each.fit()));
  const exportMenu = menu(savePictures, control && exportAs);
  const verdict = new Verdict({ model, control, run, complain, drawn: hold, open: (number) => (number < 0 ? tabs.open("Findings") : reveal({ finding: number })) });
  const bars = h("div", { class: "dw-bars" }, memory.el, hint, h("div", { class: "dw-cpu" }, cpu));
  const root = h(
    "div",
    { class: "dw dw-panel" },
    h("div", { class: "dw-top" }, title, exportMenu),
    banner,
    h("div", { class: "dw-form" }, control ? inputs.el : "", status),
    printed,
    verdict.el,
    tabs.list,
    tabs.pages,
  );
  keepKeys(root);
  el.append(root);

  function tell(kind, text) {
    status.className = `dw-status dw-status-${kind}`;
    status.replaceChildren(kind === "busy" || kind === "queued" ? h("span", { class: "dw-spin", "aria-hidden": "true" }) : "", ...prose(text ?? ""));
    inputs.busy(kind === "busy" || kind === "queued");
    hold();
  }
  // Buttons that run a step are disabled while one runs, and after a restart; new ones too.
  function hold() {
    for (const button of root.querySelectorAll(".dw-try, .dw-apply, .dw-apply-this, .dw-undo")) button.disabled = inputs.button.disabled;
  }
  // A word in passing: the status of the panel comes back after it.
  function mention(text) {
    tell("done", text);
    setTimeout(() => status.textContent === text && sayStatus(), 4000);
  }
  function trace(request) {
    run({ ask: "trace", ...request });
  }
  function tryFix(finding, fix) {
    run({ ask: "try", finding, fix });
  }
  function applyFix(finding, fix) {
    verdict.at = finding;
    verdict.apply(finding, fix);
    verdict.el.scrollIntoView({ block: "nearest" });
  }
  function drawVerdict() {
    verdict.show(model.get("traced") ?? {}, model.get("applied") ?? {});
  }
  function run(question) {
    tell("queued", say("asking the kernel … (after the running cell)"));
    ask(control, question, (answer) => {
      if (answer.error) tell("error", answer.error);
      else if (answer.state === "queued" && status.classList.contains("dw-status-queued")) tell("queued", say("queued until the running cell ends"));
      else if (answer.state === "busy") tell("queued", say("a trace is already running"));
    });
  }
  // A trace that runs says itself that it was cancelled; one that waits is only dropped.
  function cancel() {
    ask(control, { ask: "cancel" }, (answer) => {
      if (answer.cancelled && status.classList.contains("dw-status-queued")) tell("idle", say("cancelled before it started"));
    });
  }
  function complain(answer) {
    if (answer.error) tell("error", answer.error);
  }
  function exportAs(form) {
    if (form === "side") return openInSide(model, model.get("head")?.title ?? "devwidget").then((shown) => shown || mention(say("Only JupyterLab has a side bar. Elsewhere, open the notebook in a second window.")));
    ask(control, { ask: "export", form }, (answer) => (answer.error ? tell("error", answer.error) : save(answer, mention)));
  }
  // The figures of the open tab; the memory bars where it has none.
  async function savePictures(format) {
    const drawn = figures.filter((each) => each !== memory && each.spec && each.el.clientWidth);
    try {
      for (const each of drawn.length ? drawn : [memory]) {
        const name = `${(model.get("head")?.title || "trace").replace(/\W+/g, "-")}-${each.name}.${format}`;
        saveAs(await each.picture(format), name);
        mention(say("saved {file}", { file: name }));
      }
    } catch (error) {
      tell("error", say("cannot save the figure: {error}", { error: error.message }));
    }
  }
  function filterBy(text) {
    tabs.open("Modules");
    tree.set("filter", tree.get("filter") === text ? "" : text);
  }
  // To a row of the tree, a finding, a line of hops, or a place of the timeline.
  function reveal(target) {
    if (target.finding >= 0) return showAt("Findings", ".dw-found", target.finding);
    if (target.hop >= 0) return showAt("Trace", ".dw-hop-row", target.hop);
    if (target.move) return reveal({ hop: hopOf(target.move) });
    if (target.at) {
      tabs.open("Trace");
      timeline.point(target.at);
      return timeline.el.scrollIntoView({ block: "nearest" });
    }
    tabs.open("Modules");
    tree.set("reveal", { ...target, at: Date.now() });
  }

  // The line of hops that a way of the picture begins with.
  function hopOf({ number, source, target }) {
    const hops = model.get("traced")?.hops ?? [];
    const exact = hops.findIndex((hop) => hop.at?.[0] === Number(number));
    return exact >= 0 ? exact : hops.findIndex((hop) => hop.source === source && hop.target === target);
  }

  function showAt(tab, kind, number) {
    tabs.open(tab);
    const found = tabs.page(tab).querySelectorAll(kind)[number];
    if (!found) return;
    found.hidden = false;
    if ("open" in found) found.open = true;
    found.scrollIntoView({ block: "nearest" });
    found.focus({ preventScroll: true });
  }

  function drawChosen() {
    const { path } = model.get("chosen") ?? {};
    if (path !== undefined) reveal({ path });
  }

  // A mark of a figure: its words, the path of its module, and what else it leads to; outside the model there is no row.
  function revealMark(facts) {
    if (!Array.isArray(facts)) return;
    if (facts[2]) reveal(facts[2]);
    else if (facts[1] != null) reveal({ path: facts[1] });
  }

  const spread = h("div");
  function drawHead() {
    const head = model.get("head");
    inputs.el.hidden = Boolean(control && head?.title && !head.parameters); // a run that was watched elsewhere
    tabs.offer("Modules", !inputs.el.hidden);
    drawMeters();
    spread.replaceChildren(...(head?.spread ?? []).map((card) => spreadSection(card, reveal)));
  }
  function drawMeters(content = model.get("memory") ?? {}) {
    const head = model.get("head");
    if (head?.title) title.replaceChildren(...headline(head, content.meters ?? [], filterBy).filter(Boolean));
  }
  function drawMemory(content = model.get("memory") ?? {}) {
    if (content.error) return tell("error", content.error);
    drawMeters(content);
    memory.show(withCpu && content.all ? content.all : content.gpus);
    hint.hidden = !content.no_gpu;
    cpu.hidden = !content.all;
    cpu.setAttribute("aria-pressed", String(withCpu));
    cpu.textContent = withCpu ? say("hide cpu") : say("show cpu");
  }
  // An empty tab says what it will show, with a variable that the notebook has now.
  const none = (what) => h("p", { class: "dw-empty" }, ...prose(howTo(what, model.get("inputs")?.names)));
  const compared = h("div");
  const timeline = new Timeline("dw-timeline", reveal);
  figures.push(timeline);
  const steps = figure("dw-steps", revealMark);
  const devices = new Picture("dw-now-devices", { unfold: control && unfold, reveal });
  const sections = SECTIONS.map((each) => each.open({ model, live, control, tabs, host, signal, figure, reveal, revealMark, complain }));
  function unfold(question) {
    ask(control, { ask: "devices", ...question }, (answer) => (answer.error ? complain(answer) : devices.show(answer.drawn)));
  }
  function drawTrace() {
    const traced = model.get("traced") ?? {};
    tree?.set("traced", traced); // sent once; the drawers of the rows show their part of it
    const findings = traced.findings ?? [];
    tabs.count("Findings", findings.length + (traced.failure ? 1 : 0), traced.failure ? "error" : findings[0]?.severity);
    tabs.count("Trace", traced.hops?.reduce((sum, hop) => sum + hop.count, 0) ?? 0);
    drawVerdict();
    tabs.page("Findings").replaceChildren(compared, ...findingsView(traced, reveal, none, control && { tryIt: tryFix, apply: applyFix }));
    hold();
    tabs.page("Trace").replaceChildren(...(traced.summary ? [control ? keepKey() : "", timeline.el, hopTable(traced.hops, reveal), waitTable(traced.waits, reveal)] : [none(say("the path of one batch through the devices: each module, hop and fault"))]));
    timeline.show(traced.timeline && { ...traced.timeline, hops: traced.hops });
    drawDevices();
    tabs.page("Memory").replaceChildren(...(traced.summary ? memorySection(traced.peaks, steps.el, reveal) : [none(say("what fills the memory of each device during one step, and what causes the peak"))]));
    steps.show(traced.memory);
  }
  function keepKey() {
    const keep = h("button", { class: "dw-plain dw-keep", type: "button", title: say("Compares later traces with this one.") }, say("Compare later traces"));
    keep.addEventListener("click", () => ask(control, { ask: "keep" }, complain));
    return keep;
  }
  function drawCompared() {
    const { verdict, ...parts } = model.get("compared") ?? {};
    compared.replaceChildren(...(verdict ? [comparedSection(verdict, parts)] : []));
  }
  function drawDevices() {
    const { parallel = [] } = model.get("traced") ?? {};
    const now = model.get("devices") ?? {};
    devices.show(now.drawn ?? {});
    devices.el.hidden = !now.drawn;
    const beside = sections.map((each) => each.beside?.()).filter(Boolean);
    const below = sections.flatMap((each) => each.below ?? []);
    tabs.page("Devices").replaceChildren(h("div", { class: beside.length ? "dw-beside-each-other" : null }, h("div", null, beside.length ? h("h4", null, say("Current placement")) : "", devices.el, wordList(now.words)), beside), ...parallel.map(callSection), spread, ...below);
    if (!model.get("traced")?.summary) devices.el.after(none(say("what is copied between the devices")));
    if (!now.drawn && !parallel.length) tabs.page("Devices").prepend(h("p", { class: "dw-empty" }, say("No model to draw. Call `devwidget.show(model)`.")));
  }
  function drawGone() {
    if (model.get("gone")) return stale(say("The model was deleted. The panel shows its last state."));
    if (banner.hidden || hasRestarted) return;
    banner.hidden = true; // its name is that of a new object
    root.classList.remove("dw-stale");
    inputs.end(false);
    sayStatus();
  }
  function stale(text) {
    banner.textContent = text;
    banner.hidden = false;
    root.classList.add("dw-stale");
    inputs.end(true);
    verdict.tell(""); // a question that is open there would write a file
    tell("idle", "");
  }
  function restarted() {
    hasRestarted = true;
    stale(say("The kernel was restarted. The panel shows the last state; re-run the cell to reconnect it."));
    sections.forEach((each) => each.end?.());
  }
  function drawInputs() {
    inputs.offer(model.get("inputs") ?? {});
  }
  function sayStatus() {
    const { kind = "idle", text } = model.get("status") ?? {};
    tell(kind, text);
  }
  // What a new trace has found is opened; a refusal leaves what is open.
  function drawStatus() {
    sayStatus();
    const { findings, failure } = model.get("traced") ?? {};
    if (["done", "error"].includes(model.get("status")?.kind) && (findings?.length || failure || model.get("applied")?.works)) tabs.open("Findings");
    verdict.comeBack(); // from the cell, to which its button has led
  }
  function drawPrinted() {
    const text = model.get("printed") ?? "";
    printed.hidden = !text;
    printed.replaceChildren(h("summary", null, say("printed by the traced code")), h("pre", { tabindex: "0" }, text));
  }

  const listeners = {
    "change:head": drawHead,
    "change:memory": () => drawMemory(),
    "change:traced": drawTrace,
    "change:gone": drawGone,
    "change:inputs": () => (drawInputs(), model.get("traced")?.summary || drawTrace()), // empty tabs name a variable
    "change:status": drawStatus,
    "change:printed": drawPrinted,
    "change:compared": drawCompared,
    "change:applied": drawVerdict,
    "change:devices": drawDevices,
    "change:chosen": drawChosen,
  };
  // While a cell runs; what was on its way when the cell ended comes too late.
  const sampled = () => live?.get("figure")?.over !== undefined && live.get("figure").over === model.get("memory")?.drawn && drawMemory(live.get("figure"));
  const liveListeners = { "change:figure": sampled };
  sections.forEach(({ draw }, at) => {
    const event = `change:${SECTIONS[at].name}`;
    listeners[event] = draw ?? drawDevices;
    if (draw) liveListeners[event] = draw;
  });
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  for (const [name, listener] of Object.entries(liveListeners)) live?.on(name, listener);
  const lead = () => reveal(tree.get("lead"));
  tree?.on("change:lead", lead);
  drawHead();
  drawInputs();
  drawMemory();
  sampled();
  drawTrace();
  sections.forEach((each) => each.draw?.());
  drawGone();
  drawPrinted();
  drawCompared();
  watchKernel(model, control, restarted, signal);
  if (model.get("opens")) tabs.open(model.get("opens"));
  else if (!model.get("head")?.title) tabs.open("Trace"); // a trace that was saved without its model
  if (!model.get("gone") && !control?.get("ended")) drawStatus(); // a panel that was traced before it was shown opens as one traced after
  tabs.page("Modules").appendChild(bars);
  const inner = tabs.page("Modules").appendChild(h("div"));
  await (await host.getWidget(model.get("tree"))).render({ el: inner, signal });
  drawChosen();
  if (control) ask(control, { ask: "hello" }); // the answer lets later clicks be heard while a cell runs
  const stop = () => {
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    for (const [name, listener] of Object.entries(liveListeners)) live?.off(name, listener);
    tree?.off("change:lead", lead);
    [...figures, devices, ...sections].forEach((each) => each.close?.());
  };
  signal?.addEventListener("abort", stop);
  return stop;
}

export default { render: spoken(render) };
