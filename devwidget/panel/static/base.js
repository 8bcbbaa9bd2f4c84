// What all widgets share: the traits of Python as signals, questions to Python, the end of its kernel, keys, words.
import htm from "htm";
import { Component, createRef, h, render } from "preact";
import { computed, effect, signal } from "@preact/signals-core";
import { learn, say } from "./words.js";

// A button submits no form unless it says so. Tooltips and what is read out have no code in them: they would show its backticks.
function element(type, props, ...children) {
  if (type === "button") props = { type, ...props };
  for (const name of ["title", "aria-label"]) {
    if (props?.[name]?.includes?.("`")) props[name] = props[name].replaceAll("`", "");
  }
  return h(type, props, ...children);
}

export const html = htm.bind(element);

// The traits of a model, each a signal from when it is first read until the page is gone.
/** @returns {any} */
function traitsOf(model, over) {
  const signals = {};
  const follow = (name) => {
    const trait = signal(model.get(name));
    listenTo(model, `change:${name}`, () => (trait.value = model.get(name)), over);
    return trait;
  };
  return new Proxy(signals, { get: (_, name) => (signals[name] ??= follow(name)).value });
}

function listenTo(model, event, listener, over) {
  model.on(event, listener);
  over.addEventListener("abort", () => model.off(event, listener));
}

// An id that nothing else of this page has: each widget loads these modules for itself.
export const newId = (name) => `dw-${name}-${Math.random().toString(36).slice(2)}`;

// One view of a widget, until `over` is aborted.
export class Page {
  constructor(model, host, over) {
    this.model = model;
    this.host = host;
    this.over = over;
    this.state = traitsOf(model, over); // a component that reads a trait is drawn again when it changes
    this.control = null; // the model that takes questions; a saved page has none
    this.asked = new Map(); // id of a question -> what takes its answer
    this.ended = signal(false); // whether the kernel is gone
    this.status = signal({}); // { kind, text }: what Python says, or what the page says of its questions
    this.isBusy = computed(() => ["busy", "queued"].includes(this.status.value.kind));
  }

  async open() {
    const name = this.model.get("control");
    this.control = name ? await this.host.getModel(name) : null;
    this.ended.value = Boolean(this.control?.get("ended")); // by another view
    if (this.control) this.on("msg:custom", (message) => this.hear(message), this.control);
    this.on("comm_live_update", () => this.lookForKernel());
    this.follow(() => this.sayStatus());
  }

  // What is said after a restart; "" before it.
  get restarted() {
    return this.ended.value ? say("The kernel was restarted. The panel shows the last state; re-run the cell to reconnect it.") : "";
  }

  tell(kind, text) {
    this.status.value = { kind, text };
  }

  sayStatus() {
    this.status.value = this.state.status ?? {};
  }

  // Runs now, and whenever a signal that it has read changes.
  follow(run) {
    this.over.addEventListener("abort", effect(run));
  }

  traitsOf(model) {
    return traitsOf(model, this.over);
  }

  on(event, listener, model = this.model) {
    listenTo(model, event, listener, this.over);
  }

  // -> Promise of the answer, whose `error` is told; after a restart nobody answers.
  async ask(question) {
    const gone = say("The kernel was restarted. Re-run the cell to reconnect the panel.");
    const answer = this.ended.value ? { error: gone } : await this.send({ ...question, id: newId("question") });
    if (answer.error) this.tell("error", answer.error);
    return answer;
  }

  send(question) {
    return new Promise((answered) => {
      this.asked.set(question.id, answered);
      this.control.send(question);
    });
  }

  hear(message) {
    this.asked.get(message?.to)?.(message);
    this.asked.delete(message?.to);
  }

  // Jupyter fires an event when the kernel's side of a panel is gone, though no specification has it.
  async lookForKernel() {
    const name = this.model.get("control")?.replace("anywidget:", "");
    const model = name ? this.model.widget_manager?.get_model(name) : this.model;
    const self = await Promise.resolve(model).catch(() => "closed"); // from Python: there is nothing left to tell
    if (self === "closed" || self?.comm_live) return;
    this.control?.set("ended", true);
    this.ended.value = true;
  }
}

// JupyterLab's command mode listens for plain keys above us: `x` in a focused table would cut the user's cell.
function keepKey(event) {
  const isLeaving = event.key === "Tab" || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
  if (!event.ctrlKey && !event.metaKey && !event.altKey && !isLeaving) event.stopPropagation();
}

// What the outermost element of each widget has.
export const KEYS = { "data-lm-suppress-shortcuts": "true", onkeydown: keepKey };

// A widget as Jupyter asks for it. `open(page)` makes its state and returns its component; new words draw all of it anew.
export function widget(open, Kind = Page) {
  async function show({ model, el, host, signal: outer }) {
    const end = new AbortController();
    const page = new Kind(model, host, end.signal);
    outer?.addEventListener("abort", () => end.abort());
    end.signal.addEventListener("abort", () => render(null, el));
    learn(model.get("words"));
    await page.open();
    const View = await open(page);
    if (end.signal.aborted) return undefined;
    const draw = () => {
      learn(model.get("words"));
      render(null, el);
      render(html`<${View} />`, el);
    };
    draw();
    page.on("change:words", draw);
    return () => end.abort();
  }
  return { render: show };
}

// A component that others call by its `ref`, which preact hands on as a property.
export class Callable extends Component {
  constructor(props) {
    super(props);
    if (props.ref) props.ref.current = this;
  }
}

// A component that calls `fit()` when `el` was drawn, drawn again, or has another size.
export class Fitted extends Callable {
  el = createRef();
  sizes = new ResizeObserver(() => this.fit());

  componentDidMount() {
    this.sizes.observe(this.el.current);
    this.fit();
  }

  componentDidUpdate() {
    this.fit();
  }

  componentWillUnmount() {
    this.sizes.disconnect();
  }
}
