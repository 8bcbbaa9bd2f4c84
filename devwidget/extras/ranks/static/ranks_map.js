// The map: a cell for each rank where it stands in the mesh, coloured by state, by memory or by placement.
import { useState } from "preact/hooks";
import { html, newId } from "../../../panel/static/base.js";
import { inRow, say, word } from "../../../panel/static/words.js";

export const SIGNS = { answered: "", hung: "·", busy: "…", stopped: "‖", stale: "~", dead: "×", raised: "⚡", terminated: "–", ended: "✓", unknown: "?" };
export const MEANINGS = {
  answered: word("answered at once"),
  hung: word("waits in a collective that others have not reached, or for too long"),
  busy: word("is alive but did not answer in time"),
  stopped: word("was stopped by a signal"),
  stale: word("its file is much older than the others"),
  dead: word("its process ended without a final report"),
  raised: word("ended with an exception"),
  terminated: word("ended by a signal"),
  ended: word("ended without an exception"),
  unknown: word("no data from it"),
};
const MOST_KINDS = 12; // of placements in the legend
const MOST_NAMED = 3;

export const letterOf = (column) => (column < 26 ? String.fromCharCode(65 + column) : `${column + 1}`);
export const kindHue = (column) => `--dw-hue:${HUES.accelerators[column % HUES.accelerators.length]}`;

// By what ranks are coloured, and what the colours mean.
const LOOKS = { [word("state")]: stateLegend, [word("memory")]: memoryLegend, [word("placement")]: placementLegend };

// `kept` are the ranks that a filter left, null for all; `chosen` is a signal with the number of a rank.
export function RanksMap({ content, kept, chosen }) {
  const [id] = useState(newId("ranks"));
  const [look, setLook] = useState("state");
  const { lanes } = content;
  const across = acrossOf(content);
  const names = lanes.map((lane, at) => laneName(content, lane, at));
  const longest = Math.max(...names.map((each) => each.length));
  const isLarge = lanes.length > 16 || across > 32;
  const [name, size] = acrossAxis(content, across);
  const most = Math.max(1, ...content.ranks.map(({ taken = 0 }) => taken));
  const cell = (number) => rankCell(content, number, { most, kept, chosen, id });
  const lookButton = (each) => html`<button class="dw-plain dw-look" aria-pressed=${each === look} onclick=${() => setLook(each)}>${say(each)}</button>`;
  return html`
    <div class="dw-map-of-ranks">
      <div class="dw-looks"><span class="dw-soft">${say("colour by")}</span>${Object.keys(LOOKS).map(lookButton)}</div>
      <div class="dw-scroll-x">
        <div
          class=${isLarge ? "dw-map-grid dw-many" : "dw-map-grid"} data-look=${look} role="grid" tabindex="0" aria-label=${say("ranks")}
          aria-activedescendant=${`${id}-${chosen.value}`} style=${`--dw-across:${across};--dw-longest-name:${longest}`}
          onkeydown=${(event) => walk(event, lanes, chosen)} onclick=${(event) => choose(event, chosen)}
        >
          <div class="dw-lane dw-lane-head" aria-hidden="true">
            <span class="dw-lane-name" /><span class="dw-across">${`${name} 0 – ${size - 1} →`}</span>
          </div>
          ${lanes.map((lane, at) => laneRow(content, lane, names[at], cell))}
        </div>
      </div>
      <div class="dw-legend dw-map-key">${LOOKS[look](content)}</div>
    </div>
  `;
}

function laneRow(content, lane, name, cell) {
  const named = lane.filter((number) => content.named.includes(number));
  const each = named.map((number) => say("rank {number}", { number })).join(", ");
  const words = named.length > MOST_NAMED ? say("{count} ranks", { count: named.length }) : each;
  return html`
    <div class=${named.length ? "dw-lane dw-lane-odd" : "dw-lane"} role="row">
      <span class="dw-lane-name" role="rowheader">${name}</span>
      ${lane.map(cell)}
      ${named.length > 0 && html`<span class="dw-lane-named" role="gridcell">${words}</span>`}
    </div>
  `;
}

// A cell says its state, share and kind; `ranks.css` shows that by which the map is coloured.
function rankCell({ ranks, columns, named }, number, { most, kept, chosen, id }) {
  const { state, step, memory, taken, column } = ranks[number];
  const sign = SIGNS[state];
  const alike = columns[column]?.[0];
  const isNamed = named.includes(number);
  const words = [say("rank {number}", { number }), say(state), step !== undefined && say("step {step}", { step }), memory];
  const label = inRow([...words, alike && say("same placement as {ranks}", { ranks: alike })]);
  const looks = ["dw-rank", `dw-state-${state}`, isNamed && "dw-named", kept && !kept.has(number) && "dw-faint"];
  const style = [taken !== undefined && shareOf(taken / most), column !== undefined && kindHue(column)];
  return html`
    <span
      class=${looks.filter(Boolean).join(" ")} role="gridcell" id=${`${id}-${number}`} data-rank=${number} style=${style.filter(Boolean).join(";")}
      aria-label=${label} title=${label} aria-selected=${number === chosen.value || null} data-named=${isNamed && !sign ? "!" : null}
      data-letter=${column !== undefined && !sign ? letterOf(column) : null}
    >${sign}</span>
  `;
}

function choose(event, chosen) {
  const cell = event.target.closest("[data-rank]");
  if (cell) chosen.value = Number(cell.dataset.rank);
}

function walk(event, lanes, chosen) {
  const lane = lanes.findIndex((numbers) => numbers.includes(chosen.value));
  const at = lanes[lane]?.indexOf(chosen.value) ?? 0;
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -at], End: [0, Infinity] };
  const [down, right] = moves[event.key] ?? [];
  if (down === undefined) return;
  const numbers = lanes[Math.min(Math.max(lane + down, 0), lanes.length - 1)];
  chosen.value = numbers[Math.min(Math.max(at + right, 0), numbers.length - 1)];
  event.preventDefault();
}

// How many ranks stand in the longest row.
export const acrossOf = ({ lanes }) => Math.max(1, ...lanes.map((lane) => lane.length));

// Of the most that a rank has.
const shareOf = (share) => `--dw-share:${share.toFixed(2)}`;

const sample = (look, words, { style = "", sign = "", title = "" } = {}) => html`
  <span title=${title || null}><i class=${look} style=${style} aria-hidden="true">${sign}</i>${words}</span>
`;

function stateLegend({ states, named }) {
  const title = say("a finding says that it is missing, has ended, or blocks the others");
  return html`
    ${named.length > 0 && sample("dw-named", `${named.length} ${say("named in findings")}`, { sign: "!", title })}
    ${states.map(([state, count]) => sample(`dw-state-${state}`, `${count} ${say(state)}`, { sign: SIGNS[state], title: say(MEANINGS[state]) }))}
  `;
}

function memoryLegend({ spans }) {
  const span = spans.find((each) => each.name === "allocated");
  if (!span) return html`<span>${say("no rank reported its memory")}</span>`;
  const [least, , most] = span.share;
  const end = (share, [size, number]) => sample("dw-heat", say("{size}, rank {number}", { size, number }), { style: shareOf(share) });
  return [end(least, span.least), end(most, span.most)];
}

function placementLegend({ columns }) {
  const more = columns.length - MOST_KINDS;
  return html`
    ${columns.slice(0, MOST_KINDS).map(([words], at) => sample("dw-kind-of", words, { style: kindHue(at), sign: letterOf(at) }))}
    ${more > 0 && html`<span>${say("and {count} more", { count: more })}</span>`}
  `;
}

// Along what the ranks of a row differ: an axis of the mesh, their place on their machine, or their number.
function acrossAxis({ ranks, axes, lanes, lane_names }, across) {
  const differ = axes.filter((_, at) => new Set(lanes[0].map((number) => ranks[number].at[at])).size > 1);
  if (axes.length > 1 && differ.length === 1 && differ[0][1] === across) return differ[0];
  return lane_names.some(Boolean) ? [say("position on the machine"), across] : [say("ranks"), ranks.length];
}

// What the ranks of a lane have in common: `pp 0 · tp 3`; its machine; of one machine and one axis the first number.
function laneName({ ranks, axes, lanes, lane_names }, [first, ...others], at) {
  const machine = lane_names[at];
  const size = axes.reduce((product, [, length]) => product * length, 1);
  if (axes.length < 2 || ranks.length !== size) return machine || (lanes.length > 1 ? String(first) : "");
  const isCommon = (axis) => axes[axis][1] > 1 && others.every((number) => ranks[number].at[axis] === ranks[first].at[axis]);
  const common = axes.map(([name], axis) => isCommon(axis) && `${name} ${ranks[first].at[axis]}`);
  return [machine, ...common].filter(Boolean).join(" · ");
}
