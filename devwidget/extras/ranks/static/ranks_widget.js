// The panel of a job: all ranks as a map, what is wrong, who does not answer, memory, and what each module holds where.
import { ask, h, keepKeys, prose, watchKernel } from "../../../panel/static/dom.js";
import { findingsView } from "../../../panel/static/findings.js";
import { filterRanks } from "./ranks_filter.js";
import { heldView } from "./ranks_held.js";
import { RanksMap } from "./ranks_map.js";
import { stepView } from "./ranks_step.js";
import { memoryTable, PlacementTable, stateTag, troubledTable } from "./ranks_table.js";
import { inRow, say, spoken } from "../../../panel/static/words.js";

async function render({ model, el, host, signal }) {
  const control = model.get("control") ? await host.getModel(model.get("control")) : null;
  const title = h("div", { class: "dw-headline" });
  const status = h("div", { class: "dw-status", role: "status", "aria-live": "polite" });
  const again = h("button", { class: "dw-primary", type: "button", onclick: askAgain }, say("Ask again"));
  const input = h("input", { class: "dw-input dw-rank-filter", type: "search", spellcheck: "false", autocomplete: "off", "aria-label": say("filter ranks"), oninput: filter });
  const said = h("span", { class: "dw-soft", role: "status" });
  const chips = h("span", { class: "dw-chips" });
  const detail = h("div", { class: "dw-rank-detail", role: "region", tabindex: "0", "aria-label": say("selected rank") });
  const map = new RanksMap(show);
  const placements = new PlacementTable();
  const [findings, held, troubled, step, memory] = [h("div"), h("div"), h("div"), h("section", { class: "dw-step" }), h("div")];
  const place = h("div", { class: "dw-rank-map" }, map.el, detail);
  let content;
  /** @type {Set<number> | null} */
  let kept = null;
  const root = h(
    "div",
    { class: "dw dw-panel dw-ranks" },
    h("div", { class: "dw-top" }, title, model.get("live") && control ? again : ""),
    status,
    h("div", { class: "dw-rank-tools" }, input, chips, said),
    held,
    findings,
    place,
    troubled,
    step,
    h("h4", null, say("Memory")),
    memory,
    h("h4", null, say("Tensors of each module")),
    placements.el,
  );
  keepKeys(root);
  el.append(root);

  function tell(kind, text) {
    status.className = `dw-status dw-status-${kind}`;
    status.replaceChildren(kind === "busy" ? h("span", { class: "dw-spin", "aria-hidden": "true" }) : "", text ?? "");
    again.disabled = kind === "busy";
  }
  function askAgain() {
    tell("busy", say("asking the ranks …"));
    ask(control, { ask: "ranks" }, (answer) => tell(answer.error ? "error" : "done", answer.error ?? ""));
  }
  function draw() {
    content = model.get("content");
    if (!content?.ranks) return;
    const [first, ...rest] = content.title.split(" · ");
    if (content.asked) rest.push(say("asked {time}", { time: content.asked }));
    title.replaceChildren(h("strong", { class: "dw-title" }, first), h("span", { class: "dw-soft" }, ` ${rest.join(" · ")}`));
    const [name] = content.axes[0] ?? ["rank"];
    input.placeholder = content.axes.length > 1 ? `${name}=(1,3), ${content.axes[1][0]}=2:8` : `${name}=2:8`;
    chips.replaceChildren(...content.states.filter(([state]) => state !== "answered").map(([state, count]) => h("button", { class: "dw-tag", type: "button", title: say("show only ranks in state {state}", { state: say(state) }), onclick: () => turn(`state=${state}`) }, stateTag(state), ` ${count}`)));
    const { checked, not_checked } = content;
    const all = findingsView({ summary: true, findings: content.findings, checked, not_checked, not_restored: [], failure: null }, () => undefined, () => "");
    findings.replaceChildren(...(content.findings.length || checked.length ? all : []));
    held.replaceChildren(...heldView(content, show));
    map.show(content);
    step.replaceChildren(...stepView(content));
    place.style.setProperty("--dw-across", String(map.across));
    const odd = content.ranks.findIndex((rank) => !["answered", "ended"].includes(rank.state));
    filter();
    const named = content.named?.[0];
    show(named !== undefined ? named : odd >= 0 ? odd : (content.spans.find((span) => span.outlier !== null)?.outlier ?? 0));
  }
  function turn(text) {
    input.value = input.value === text ? "" : text;
    filter();
  }
  function filter() {
    if (!content) return;
    try {
      kept = filterRanks(content.ranks, content.axes, input.value);
      said.textContent = kept ? say("{count} of {all} ranks", { count: kept.size, all: content.ranks.length }) : "";
      input.removeAttribute("aria-invalid");
    } catch (error) {
      said.replaceChildren(...prose(error.message));
      input.setAttribute("aria-invalid", "true");
      return;
    }
    map.filter(kept);
    troubled.replaceChildren(...[troubledTable(content, kept, show)].flat().filter(Boolean));
    memory.replaceChildren(...[memoryTable(content, show)].filter(Boolean));
    placements.show(content, kept);
  }
  function show(number) {
    const rank = content.ranks[number];
    map.select(number);
    const at = content.axes.length > 1 ? content.axes.map(([name], place) => `${name} ${rank.at[place]}`).join(", ") : "";
    const facts = [
      [say("where"), inRow([rank.where, rank.device])],
      [say("step"), inRow([rank.step !== undefined ? String(rank.step) : "", rank.age ? say("reported {time} ago", { time: rank.age }) : ""])],
      [say("memory"), rank.memory],
      [say("holds"), rank.column === undefined ? "" : say("{size}, same as {ranks}", { size: content.columns[rank.column][1], ranks: content.columns[rank.column][0] })],
      [say("why"), rank.note],
      [say("waits in"), rank.waits],
    ];
    detail.replaceChildren(
      h("div", { class: "dw-rank-title" }, h("b", null, say("rank {number}", { number })), at ? h("span", { class: "dw-soft" }, ` ${at} `) : " ", stateTag(rank.state)),
      h("dl", null, facts.filter(([, text]) => text).map(([name, text]) => [h("dt", null, name), h("dd", null, prose(text))])),
      rank.stack === undefined ? "" : h("ol", { class: "dw-stack", "aria-label": say("stack, innermost line last") }, content.stacks[rank.stack].map(([place, code]) => h("li", null, h("span", { class: "dw-soft" }, place), " ", h("code", null, code)))),
    );
  }
  function drawStatus() {
    const { kind, text } = model.get("status") ?? {};
    if (kind) tell(kind, text);
  }

  const listeners = { "change:content": draw, "change:status": drawStatus };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  draw();
  drawStatus();
  watchKernel(model, control, () => {
    tell("error", say("The kernel was restarted. The panel shows the last state; re-run the cell to reconnect it."));
    again.disabled = true;
  }, signal);
  if (control) ask(control, { ask: "hello" });
  const stop = () => {
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
  };
  signal?.addEventListener("abort", stop);
  return stop;
}

export default { render: spoken(render) };
