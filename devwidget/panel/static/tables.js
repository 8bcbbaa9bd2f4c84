// The tables of the Trace tab: hops and syncs by line.
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
    [say("times"), (hop) => hop.count, "dw-number"],
    [say("bytes"), (hop) => hop.bytes, "dw-number"],
    [say("where"), (hop) => whereOf(hop, reveal), "dw-place"],
    isTimed && [say("cost"), seconds, "dw-number"],
    [say("cause"), (hop) => html`${causeWords(hop.cause)}<span class="dw-soft"> ${say(hop.phase)}</span>`],
    [say("tensor"), (hop) => hop.what, "dw-mono dw-shapes"],
  ];
  const about = ({ number, source, target, cause }) => ({
    class: cause === "healed" ? "dw-hop-row dw-hop-wrong" : "dw-hop-row",
    tabindex: "-1",
    "data-hop": number,
    "data-source": source,
    "data-target": target,
    "data-cause": cause,
  });
  const numbered = hops.map((hop, number) => ({ ...hop, number }));
  const wrongFirst = numbered.sort((one, other) => Number(other.cause === "healed") - Number(one.cause === "healed"));
  return table(say("hops by line"), columns, wrongFirst, about);
}

// The lines at which the host waited for a device.
export function waitTable(waits, reveal) {
  if (!waits?.length) return "";
  const columns = [
    [say("syncs with"), (wait) => chip(wait.device), "dw-nowrap"],
    [say("times"), (wait) => wait.count, "dw-number"],
    [say("where"), (wait) => whereOf(wait, reveal), "dw-place"],
    [say("call"), (wait) => html`<span class="dw-mono">${wait.what}</span><span class="dw-soft"> ${wait.phase}</span>`],
  ];
  return table(say("syncs by line"), columns, waits, ({ device }) => ({ class: "dw-wait-row", "data-device": device }));
}
