// The panel of a job: all ranks as a map, what is wrong, who does not answer, memory, and what each module holds where.
import { computed, signal } from "@preact/signals-core";
import { html, KEYS, widget } from "../../../panel/static/base.js";
import { Findings } from "../../../panel/static/findings.js";
import { prose, Status } from "../../../panel/static/parts.js";
import { filterRanks } from "./ranks_filter.js";
import { acrossOf, RanksMap } from "./ranks_map.js";
import { heldView, memoryTable, PlacementTable, stateTag, stepView, troubledTable } from "./ranks_table.js";
import { inRow, say } from "../../../panel/static/words.js";

// The rank that is shown first: one that a finding names, one that is not simply there, one that is far from all others.
function firstOf({ named, ranks, spans }) {
  const odd = ranks.findIndex((rank) => !["answered", "ended"].includes(rank.state));
  if (named?.length) return named[0];
  if (odd >= 0) return odd;
  return spans.find((span) => span.outlier !== null)?.outlier ?? 0;
}

function open(page) {
  const { state } = page;
  const content = computed(() => (state.content?.ranks ? state.content : null));
  const text = signal(""); // of the filter
  const chosen = signal(0); // the number of a rank
  /** @type {Set<number> | null} */
  let left = null; // what the last filter without a mistake left
  const filtered = computed(() => filterBy(content.value, text.value));

  page.follow(() => content.value && (chosen.value = firstOf(content.value)));
  page.follow(() => page.restarted && page.tell("error", page.restarted));
  if (page.control) page.ask({ ask: "hello" });

  function filterBy(shown, words) {
    try {
      left = filterRanks(shown.ranks, shown.axes, words);
      return { kept: left, said: left ? say("{count} of {all} ranks", { count: left.size, all: shown.ranks.length }) : "" };
    } catch (error) {
      return { kept: left, said: prose(error.message), isWrong: true };
    }
  }

  async function askAgain() {
    page.tell("busy", say("asking the ranks …"));
    const answer = await page.ask({ ask: "ranks" });
    if (!answer.error) page.tell("done", "");
  }

  const show = (number) => (chosen.value = number);

  function Top() {
    const [first, ...rest] = content.value.title.split(" · ");
    const { asked } = content.value;
    if (asked) rest.push(say("asked {time}", { time: asked }));
    const isHeld = page.isBusy.value || page.ended.value;
    return html`
      <div class="dw-top">
        <div class="dw-headline"><strong class="dw-title">${first}</strong><span class="dw-soft"> ${rest.join(" · ")}</span></div>
        ${state.live && page.control && html`<button class="dw-primary" disabled=${isHeld} onclick=${askAgain}>${say("Ask again")}</button>`}
      </div>
      <${Status} page=${page} />
    `;
  }

  function Tools() {
    const { axes, states } = content.value;
    const { said, isWrong } = filtered.value;
    const [name] = axes[0] ?? ["rank"];
    const hint = axes.length > 1 ? `${name}=(1,3), ${axes[1][0]}=2:8` : `${name}=2:8`;
    const chip = ([which, count]) => {
      const words = `state=${which}`;
      const turn = () => (text.value = text.value === words ? "" : words);
      const title = say("show only ranks in state {state}", { state: say(which) });
      return html`<button class="dw-tag" title=${title} onclick=${turn}>${stateTag(which)} ${count}</button>`;
    };
    return html`
      <div class="dw-rank-tools">
        <input
          class="dw-input dw-rank-filter" type="search" spellcheck=${false} autocomplete="off" aria-label=${say("filter ranks")} placeholder=${hint}
          aria-invalid=${isWrong ? "true" : null} value=${text.value} oninput=${(event) => (text.value = event.target.value)}
        />
        <span class="dw-chips">${states.filter(([which]) => which !== "answered").map(chip)}</span>
        <span class="dw-soft" role="status">${said}</span>
      </div>
    `;
  }

  function Detail() {
    const number = chosen.value;
    const { ranks, axes, columns, stacks } = content.value;
    const rank = ranks[number];
    const at = axes.length > 1 ? axes.map(([name], place) => `${name} ${rank.at[place]}`).join(", ") : "";
    const column = columns[rank.column];
    const facts = [
      [say("where"), inRow([rank.where, rank.device])],
      [say("step"), inRow([rank.step?.toString(), rank.age && say("reported {time} ago", { time: rank.age })])],
      [say("memory"), rank.memory],
      [say("holds"), column && say("{size}, same as {ranks}", { size: column[1], ranks: column[0] })],
      [say("why"), rank.note],
      [say("waits in"), rank.waits],
    ];
    const lines = rank.stack === undefined ? [] : stacks[rank.stack];
    const stackLine = ([place, code]) => html`<li><span class="dw-soft">${place}</span> <code>${code}</code></li>`;
    return html`
      <div class="dw-rank-detail" role="region" tabindex="0" aria-label=${say("selected rank")}>
        <div class="dw-rank-title"><b>${say("rank {number}", { number })}</b>${at ? html`<span class="dw-soft"> ${at} </span>` : " "}${stateTag(rank.state)}</div>
        <dl>${facts.filter(([, words]) => words).map(([name, words]) => html`<dt>${name}</dt><dd>${prose(words)}</dd>`)}</dl>
        ${lines.length > 0 && html`<ol class="dw-stack" aria-label=${say("stack, innermost line last")}>${lines.map(stackLine)}</ol>`}
      </div>
    `;
  }

  function Ranks() {
    const { kept } = filtered.value;
    const { held, findings, checked, step } = content.value;
    return html`
      ${held?.map((each) => heldView(each, show))}
      ${(findings.length > 0 || checked.length > 0) && html`<${Findings} traced=${content.value} reveal=${() => undefined} />`}
      <div class="dw-rank-map" style=${`--dw-across:${acrossOf(content.value)}`}>
        <${RanksMap} content=${content.value} kept=${kept} chosen=${chosen} />
        <${Detail} />
      </div>
      ${troubledTable(content.value, show)}
      <section class="dw-step">${step && stepView(step)}</section>
      <h4>${say("Memory")}</h4>
      ${memoryTable(content.value, show)}
      <h4>${say("Tensors of each module")}</h4>
      <${PlacementTable} content=${content.value} kept=${kept} />
    `;
  }

  return () => html`<div class="dw dw-panel dw-ranks" ...${KEYS}>${content.value && html`<${Top} /><${Tools} /><${Ranks} />`}</div>`;
}

export default widget(open);
