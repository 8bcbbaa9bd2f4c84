// The tables of the tabs Trace and Memory: hops and syncs by line; peaks, and what was live at them.
import { html } from "./base.js";
import { causeWords, chip, moduleLink, table, traceLink } from "./parts.js";
import { say } from "./words.js";

// `reveal` leads to a row of the module tree, or to a place of the timeline.
function whereOf(each, reveal) {
  return html`${moduleLink(each, reveal)} <span class="dw-nowrap">${each.place}</span>`;
}

export function hopTable(hops, reveal) {
  if (!hops.length) return html`<p class="dw-empty">${say("No tensor was copied between devices.")}</p>`;
  const isTimed = hops.some((hop) => hop.seconds); // virtual GPUs have no times
  const seconds = (hop) => html`<span title=${say("CPU time of the calls")}>${hop.seconds}</span>`;
  const columns = [
    [say("from → to"), (hop) => html`${chip(hop.source)} ${traceLink(hop, reveal, "→")} ${chip(hop.target)}`, "dw-nowrap"],
    [say("times"), "count", "dw-number"],
    [say("bytes"), "bytes", "dw-number"],
    [say("where"), (hop) => whereOf(hop, reveal), "dw-place"],
    isTimed && [say("cost"), seconds, "dw-number"],
    [say("cause"), (hop) => html`${causeWords(hop.cause)}<span class="dw-soft"> ${say(hop.phase)}</span>`],
    [say("tensor"), "what", "dw-mono dw-shapes"],
  ];
  const about = ({ number, source, target, cause, at }) => ({
    class: cause === "healed" ? "dw-hop-row dw-hop-wrong" : "dw-hop-row",
    tabindex: "-1",
    "data-hop": number,
    "data-move": at?.[0],
    "data-source": source,
    "data-target": target,
    "data-cause": cause,
  });
  const numbered = hops.map((hop, number) => ({ number, ...hop }));
  const wrongFirst = numbered.sort((one, other) => Number(other.cause === "healed") - Number(one.cause === "healed"));
  return table(say("hops by line"), columns, wrongFirst, { about });
}

// The lines at which the host waited for a device.
export function waitTable(waits, reveal) {
  if (!waits?.length) return "";
  const columns = [
    [say("syncs with"), (wait) => chip(wait.device), "dw-nowrap"],
    [say("times"), "count", "dw-number"],
    [say("where"), (wait) => whereOf(wait, reveal), "dw-place"],
    [say("call"), (wait) => html`<span class="dw-mono">${wait.what}</span><span class="dw-soft"> ${wait.phase}</span>`],
  ];
  return table(say("syncs by line"), columns, waits, { about: () => ({ class: "dw-wait-row" }) });
}

// The Memory tab: what did not fit, the curves, the peaks, and what lived then.
export function memorySection({ peaks, refused, holdings, notes }, figure, reveal) {
  return html`
    ${refused.map((text) => html`<p class="dw-ended">${text}</p>`)}
    ${figure}
    ${peaks.length > 0 && peakTable(peaks, reveal)}
    ${holdings.length > 0 && holdingTable(holdings, reveal)}
    ${notes.map((text) => html`<p class="dw-soft">${text}</p>`)}
  `;
}

const deviceColumn = () => [say("device"), (each) => chip(each.device)];

// Where something was allocated: the module, which leads to its row, the phase, and the line.
function whereColumns(title, reveal) {
  const module = (each) => (each.path === null ? "" : moduleLink(each, reveal));
  return [
    [title, (each) => html`${module(each)}<span class="dw-soft"> ${each.phase}</span>`],
    [say("line"), "place"],
  ];
}

function peakTable(peaks, reveal) {
  const columns = [
    deviceColumn(),
    [say("peak"), "peak", "dw-number"],
    [say("capacity"), "of", "dw-number"],
    [say("made up of"), "parts", "dw-parts"],
    ...whereColumns(say("reached in"), reveal),
  ];
  return table(say("peak of each device"), columns, peaks);
}

function holdingTable(holdings, reveal) {
  const columns = [
    deviceColumn(),
    [say("live at the peak"), "bytes", "dw-number"],
    [say("for"), "role"],
    ...whereColumns(say("allocated in"), reveal),
  ];
  return table(say("live at the peak, by line"), columns, holdings);
}
