// Elements without HTML strings: every text from the model arrives as a text node, so no name can become markup.
import { say, word } from "./words.js";

export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "class") el.className = value;
    else if (key === "style") el.style.cssText = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return el;
}

// `words` in backticks become code; the rest stays text.
export function prose(text) {
  return String(text).split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

// HUES is written in front of the joined files; see `report/style/palette.py`.
export function hueOf(device) {
  const [kind, index] = String(device).split(":");
  return HUES[kind] ?? HUES.accelerators[(Number(index) || 0) % HUES.accelerators.length];
}

// A device is never shown by colour alone: the chip has its name.
export function chip(device, extra, onclick) {
  const [, kind, number] = /^(\w+:)(\d+)$/.exec(device) ?? [null, "", device];
  const text = [h("span", null, kind && h("span", { class: "dw-chip-kind" }, kind), number), extra && h("span", { class: "dw-chip-extra" }, extra)];
  return h(
    onclick ? "button" : "span",
    {
      class: `dw-chip${device === "meta" ? " dw-meta" : ""}`,
      "data-device": device,
      style: `--dw-hue:${hueOf(device)}`,
      type: onclick && "button",
      title: onclick && say("show rows on {device}", { device }),
      onclick,
    },
    h("span", { class: "dw-dot", "aria-hidden": "true" }),
    ...text,
  );
}

// What moved a tensor, where the code of the cause says too little.
const CAUSES = { explicit: word("`.to()` or copy"), healed: word("moved by devwidget") };

export const causeWords = (cause) => prose(say(CAUSES[cause] ?? cause));

// To the place of a finding or a hop on the timeline.
export function traceLink({ at }, reveal, text = say("in the trace")) {
  return at ? h("button", { class: "dw-link dw-at", type: "button", title: say("show in the trace"), "aria-label": say("in the trace"), onclick: () => reveal({ at }) }, text) : "";
}

// JupyterLab's command mode listens for plain keys above us: `x` in a focused table would cut the user's cell.
export function keepKeys(root) {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.addEventListener("keydown", (event) => {
    const leaving = event.key === "Tab" || event.key === "Escape";
    if (!event.ctrlKey && !event.metaKey && !event.altKey && !leaving && !(event.shiftKey && event.key === "Enter")) {
      event.stopPropagation();
    }
  });
}

let questions = 0;

// Ask Python a question on the control comm; `answered` gets the reply, or an error after a restart.
export function ask(control, question, answered) {
  if (control.get("ended")) return answered?.({ error: say("The kernel was restarted. Re-run the cell to reconnect the panel.") });
  const id = `${Date.now()}-${questions++}`;
  const listen = (message) => {
    if (message?.to !== id) return;
    control.off("msg:custom", listen);
    answered?.(message);
  };
  control.on("msg:custom", listen);
  control.send({ ...question, id });
}

// Tells `ended` when the kernel's side of a panel is gone: Jupyter fires this event then, though no specification has it.
export function watchKernel(model, control, ended, signal) {
  const changed = async () => {
    const kept = model.widget_manager?.get_model(model.get("control").replace("anywidget:", ""));
    const self = await Promise.resolve(kept).catch(() => "closed"); // from Python: there is nothing left to tell
    if (self === "closed" || self?.comm_live) return;
    control?.set("ended", true);
    ended();
  };
  model.on("comm_live_update", changed);
  signal?.addEventListener("abort", () => model.off("comm_live_update", changed));
  if (control?.get("ended")) ended(); // another view of a panel that is over
}
