// The panel: header, form, verdict, tabs; it asks Python through the control widget.
import { createRef } from "preact";
import { computed, signal } from "@preact/signals-core";
import { html, KEYS, newId, Page, widget } from "./base.js";
import { comparedSection } from "./compared.js";
import { callSection, Picture, spreadSection } from "./devices.js";
import { Figure, loadPlotly } from "./figure.js";
import { cardsOf, Findings } from "./findings.js";
import { Headline, Inputs, Menu, PICTURES, save, saveAs } from "./header.js";
import { Outline } from "./outline.js";
import { prose, Status } from "./parts.js";
import { SECTIONS } from "./sections.js";
import { openInSide } from "./side_bar.js";
import { hopTable, memorySection, waitTable } from "./tables.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { ModuleTree } from "./tree.js";
import { Verdict } from "./verdict.js";
import { say, word } from "./words.js";

const PAGES = {
  [word("Modules")]: ModulesPage,
  [word("Findings")]: FindingsPage,
  [word("Devices")]: DevicesPage,
  [word("Trace")]: TracePage,
  [word("Memory")]: MemoryPage,
};
const NO_GPU = word("No GPU found. To simulate GPUs, run `import devwidget; devwidget.simulate(2).start()` and build the model again.");
const MENTION_MS = 4000;
const EMPTY = {};

const typedIn = new WeakMap(); // model -> a signal: what was typed is the same in all views of a panel

// One view of a panel: what the page knows besides the state of Python, and what can be done here.
class Panel extends Page {
  verdict = createRef();
  timeline = createRef();
  root = createRef();
  id = newId("panel");
  tab = signal("Modules");
  withCpu = signal(false);
  figures = new Set(); // that can be saved
  banner = computed(() => this.whyOver());
  modules = new Outline(this);
  sections = SECTIONS.map((section) => ({ ...section, ...section.open(this) }));

  async open() {
    await super.open();
    const { model } = this;
    const [live, code] = await Promise.all(["live", "plotly"].map((name) => model.get(name) && this.host.getModel(model.get(name))));
    this.code = code;
    this.live = live ? this.traitsOf(live) : {};
    if (!typedIn.has(model)) typedIn.set(model, signal({}));
    this.typed = typedIn.get(model);
    this.watch();
    this.showChosen();
    if (this.control) this.ask({ ask: "hello" }); // the answer lets later clicks be heard while a cell runs
  }

  get traced() {
    return this.state.traced ?? EMPTY;
  }

  get isHeld() {
    return this.isBusy.value || Boolean(this.banner.value);
  }

  // Why what is shown is the last state; "" while it is not.
  whyOver() {
    if (this.restarted) return this.restarted;
    return this.state.gone ? say("The model was deleted. The panel shows its last state.") : "";
  }

  // What changes as something happens, and not by itself.
  watch() {
    const { model } = this;
    this.follow(() => this.banner.value && this.tell("idle", ""));
    this.follow(() => this.state.memory?.error && this.tell("error", this.state.memory.error));
    this.on("change:status", () => this.showStatus());
    this.on("change:gone", () => this.banner.value || this.sayStatus());
    this.on("change:chosen", () => this.showChosen());
    if (model.get("opens")) this.tab.value = model.get("opens");
    else if (!model.get("head")?.title) this.tab.value = "Trace"; // a trace that was saved without its model
    if (!this.banner.value) this.showStatus(); // a panel that was traced before it was shown opens as one traced after
  }

  // What stands in the form: what Python offers, and what was typed over it.
  get inputs() {
    const { batch, names, loss = "", target = "", heal = true } = this.state.inputs ?? EMPTY;
    return { batch: batch || names?.[0] || "", loss, target, heal, ...this.typed.value };
  }

  trace(more) {
    return this.run({ ask: "trace", ...this.inputs, ...more });
  }

  // What a new trace has found is opened; a refusal leaves what is open.
  showStatus() {
    const { kind } = this.model.get("status") ?? EMPTY;
    const { findings, failure } = this.model.get("traced") ?? EMPTY;
    const hasNews = findings?.length || failure || this.model.get("applied")?.works;
    if (["done", "error"].includes(kind) && hasNews) this.tab.value = "Findings";
    this.verdict.current?.comeBack(kind); // from the cell, to which its button has led
  }

  // A word in passing: the status of the panel comes back after it.
  mention(text) {
    this.tell("done", text);
    const mentioned = this.status.value;
    setTimeout(() => this.status.value === mentioned && this.sayStatus(), MENTION_MS);
  }

  async run(question) {
    this.tell("queued", say("asking the kernel … (after the running cell)"));
    const answer = await this.ask(question);
    const isWaiting = this.status.value.kind === "queued";
    if (answer.state === "queued" && isWaiting) this.tell("queued", say("queued until the running cell ends"));
    else if (answer.state === "busy") this.tell("queued", say("a trace is already running"));
  }

  // A trace that runs says itself that it was cancelled; one that waits is only dropped.
  async cancel() {
    const answer = await this.ask({ ask: "cancel" });
    if (answer.cancelled && this.status.value.kind === "queued") this.tell("idle", say("cancelled before it started"));
  }

  async exportAs(form) {
    if (PICTURES.includes(form)) return this.savePictures(form);
    if (form === "side") return this.openInSide();
    const answer = await this.ask({ ask: "export", form });
    if (!answer.error) this.mention(await save(answer));
  }

  async openInSide() {
    const isShown = await openInSide(this.model, this.model.get("head")?.title ?? "devwidget");
    if (!isShown) this.mention(say("Only JupyterLab has a side bar. Elsewhere, open the notebook in a second window."));
  }

  // The figures of the open tab; the memory bars where it has none.
  async savePictures(format) {
    const all = [...this.figures];
    const seen = all.filter((each) => each.isInSight);
    const title = (this.model.get("head")?.title || "trace").replace(/\W+/g, "-");
    try {
      for (const each of seen.length ? seen : all.filter(({ props }) => props.name === "memory")) {
        const name = `${title}-${each.props.name}.${format}`;
        saveAs(await each.picture(format), name);
        this.mention(say("saved {file}", { file: name }));
      }
    } catch (error) {
      this.tell("error", say("cannot save the figure: {error}", { error: error.message }));
    }
  }

  filterBy = (text) => {
    this.tab.value = "Modules";
    this.modules.filter(this.modules.filterText === text ? "" : text);
  };

  // To a row of the tree, a finding, a line of hops, or a place of the timeline.
  reveal = (target) => {
    if ("finding" in target) return this.showLine("Findings", `[data-finding="${target.finding}"]`);
    if ("hop" in target) return this.showLine("Trace", `[data-hop="${target.hop}"]`);
    if (target.move) return this.showLine("Trace", ...linesOf(target.move));
    if (target.at) return this.showIn("Trace", () => this.timeline.current?.point(target.at));
    this.showIn("Modules", () => this.modules.lead(target));
  };

  // Once the tab is drawn.
  showIn(tab, show) {
    this.tab.value = tab;
    setTimeout(show);
  }

  // The first line of a tab that one of these selectors finds; a finding is opened.
  showLine(tab, ...selectors) {
    this.showIn(tab, () => {
      const line = selectors.map((each) => this.root.current.querySelector(`.dw-page:not([hidden]) ${each}`)).find(Boolean);
      if (line?.matches("details")) line.open = true;
      line?.scrollIntoView({ block: "nearest" });
      line?.focus({ preventScroll: true });
    });
  }

  showChosen() {
    const { path } = this.model.get("chosen") ?? EMPTY;
    if (path !== undefined) this.reveal({ path });
  }

  // A mark of a figure: its words, the path of its module, and what else it leads to; outside the model there is no row.
  revealMark = (facts) => {
    if (!Array.isArray(facts)) return;
    if (facts[2]) this.reveal(facts[2]);
    else if (facts[1] != null) this.reveal({ path: facts[1] });
  };

  // What a trait has; while a cell runs its samples. What was on its way when the cell ended comes too late.
  latest(name) {
    const last = this.state[name] ?? EMPTY;
    const sampled = this.live[name];
    return sampled?.over !== undefined && sampled.over === last.drawn ? sampled : last;
  }

  figure = (name, spec, clicked, moved) => {
    const plotly = () => (this.code ? loadPlotly(this.code) : Promise.reject(new Error(say("plotly.js is not loaded"))));
    return html`<${Figure} name=${name} spec=${spec} clicked=${clicked} moved=${moved} plotly=${plotly} figures=${this.figures} />`;
  };

  // What an empty tab will show, and how to get there, with a variable that the notebook has now.
  none(what) {
    const [name] = this.state.inputs?.names ?? [];
    const batch = name ? say("such as `{name}`", { name }) : say("a variable, or an expression such as `next(iter(loader))`");
    return html`<p class="dw-empty">${prose(say("No trace yet. Enter a batch above ({batch}) and press Trace batch to see {what}.", { what, batch }))}</p>`;
  }

  // A run that was watched elsewhere has no module tree, and nothing to trace.
  get hasModel() {
    const { head } = this.state;
    return !(this.control && head?.title && !head.parameters);
  }
}

function ModulesPage({ panel }) {
  const memory = panel.latest("memory");
  const isShown = panel.withCpu.value;
  const turn = () => (panel.withCpu.value = !isShown);
  return html`
    <div class="dw-bars">
      ${panel.figure("memory", isShown && memory.all ? memory.all : memory.gpus)}
      <p class="dw-soft dw-no-gpu" hidden=${!memory.no_gpu}>${prose(say(NO_GPU))}</p>
      <div class="dw-cpu">
        <button class="dw-plain" aria-pressed=${isShown} hidden=${!memory.all} onclick=${turn}>${isShown ? say("hide cpu") : say("show cpu")}</button>
      </div>
    </div>
    <${ModuleTree} tree=${panel.modules} />
  `;
}

function FindingsPage({ panel }) {
  const { compared } = panel.state;
  const act = panel.control && {
    tryIt: (finding, fix) => panel.run({ ask: "try", finding, fix }),
    apply: (finding, fix) => panel.verdict.current.apply(finding, fix),
    isHeld: panel.isHeld,
  };
  if (!panel.traced.summary) return panel.none(say("what is wrong, the line, and the fix"));
  return html`
    ${compared?.verdict && comparedSection(compared)}
    <${Findings} traced=${panel.traced} reveal=${panel.reveal} act=${act} />
  `;
}

function DevicesPage({ panel }) {
  const { devices = EMPTY, head } = panel.state;
  const { parallel = [], summary } = panel.traced;
  const beside = panel.sections.map((section) => section.beside?.()).filter(Boolean);
  const { reveal } = panel;
  async function unfold(question) {
    const answer = await panel.ask({ ask: "devices", ...question });
    return answer.drawn;
  }
  return html`
    ${!devices.drawn && !parallel.length && html`<p class="dw-empty">${say("No model to draw. Call `devwidget.show(model)`.")}</p>`}
    <div class=${beside.length ? "dw-two" : null}>
      <div>
        ${beside.length > 0 && html`<h4>${say("Current placement")}</h4>`}
        <${Picture} className="dw-now-devices" drawn=${devices.drawn ?? EMPTY} unfold=${panel.control && unfold} reveal=${reveal} hidden=${!devices.drawn} />
        ${!summary && panel.none(say("what is copied between the devices"))}
      </div>
      ${beside}
    </div>
    ${parallel.map((call) => callSection(call, panel))}
    <div>${head?.spread?.map((card) => spreadSection(card, reveal))}</div>
    ${panel.sections.map((section) => section.below?.())}
  `;
}

function Keep({ panel }) {
  const { verdict, sides } = panel.state.compared ?? EMPTY;
  const isKept = Boolean(verdict && !sides); // it is compared with itself
  return html`
    <button class="dw-plain dw-keep" aria-pressed=${isKept} title=${say("Compares later traces with this one.")} onclick=${() => panel.ask({ ask: "keep" })}>
      ${isKept ? say("✓ Compared with later traces") : say("Compare later traces")}
    </button>
  `;
}

function TracePage({ panel }) {
  const { summary, timeline, hops, waits } = panel.traced;
  const { reveal } = panel;
  if (!summary) return panel.none(say("the path of one batch through the devices: each module, hop and fault"));
  return html`
    ${panel.control && html`<${Keep} panel=${panel} />`}
    <${Timeline} ref=${panel.timeline} drawn=${timeline} reveal=${reveal} figure=${panel.figure} />
    ${hopTable(hops, reveal)}
    ${waitTable(waits, reveal)}
  `;
}

function MemoryPage({ panel }) {
  const { summary, peaks, memory } = panel.traced;
  if (!summary) return panel.none(say("what fills the memory of each device during one step, and what causes the peak"));
  return memorySection(peaks, panel.figure("steps", memory, panel.revealMark), panel.reveal);
}

function PanelTabs({ panel }) {
  const cards = cardsOf(panel.traced);
  const { hops = [] } = panel.traced;
  const transfers = hops.reduce((sum, hop) => sum + hop.count, 0);
  const counts = { Findings: { count: cards.length, severity: cards[0]?.severity }, Trace: { count: transfers } };
  const own = Object.keys(PAGES).filter((name) => name !== "Modules" || panel.hasModel);
  const tabs = own.map((name) => ({ name, content: html`<${PAGES[name]} panel=${panel} />`, ...counts[name] }));
  const more = panel.sections.map(({ tab, page }) => ({ name: tab, ...page?.() })).filter(({ content }) => content);
  return html`<${Tabs} tabs=${[...tabs, ...more]} open=${panel.tab} id=${panel.id} />`;
}

// The lines of hops that a way of the picture may begin with.
const linesOf = ({ number, source, target }) => [`[data-move="${number}"]`, `[data-source="${source}"][data-target="${target}"]`];

const open = (panel) => () => {
  const { value: banner } = panel.banner;
  const { printed, applied = EMPTY } = panel.state;
  const facts = { panel, traced: panel.traced, applied, isHeld: panel.isHeld, isOver: Boolean(banner) };
  return html`
    <div ref=${panel.root} class=${banner ? "dw dw-panel dw-stale" : "dw dw-panel"} ...${KEYS}>
      <div class="dw-top"><${Headline} panel=${panel} /><${Menu} panel=${panel} /></div>
      <div class="dw-banner" role="alert" hidden=${!banner}>${banner}</div>
      <div class="dw-form">${panel.control && html`<${Inputs} panel=${panel} />`}<${Status} page=${panel} /></div>
      <details class="dw-printed" open hidden=${!printed}>
        <summary>${say("printed by the traced code")}</summary><pre tabindex="0">${printed}</pre>
      </details>
      <${Verdict} ref=${panel.verdict} ...${facts} />
      <${PanelTabs} panel=${panel} />
    </div>
  `;
};

export default widget(open, Panel);
