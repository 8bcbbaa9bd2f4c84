// The drawer of one row: where its class is defined, its findings, its hops, each of its tensors.
import { html } from "./base.js";
import { chip, link, prose, table } from "./parts.js";
import { hopTable } from "./tables.js";
import { say } from "./words.js";

const MOST = 200;

export function Detail({ tree, row, detail }) {
  const { path, facts, defined, tensors } = detail;
  const { panel, rows } = tree;
  const { findings = [], hops = [] } = panel.traced;
  const own = (rows.marks[row]?.[2] ?? []).filter((finding) => findings[finding]);
  const crossed = (rows.hops[row] ?? []).filter(([number]) => hops[number]);
  const lines = crossed.map(([number, count, bytes]) => ({ ...hops[number], number, count, bytes }));
  return html`
    <div class="dw-detail-title">
      <strong>${path}</strong>
      <span class="dw-soft">${detail.class}</span>
      ${facts.map((fact) => html`<span class="dw-tag">${fact}</span>`)}
      ${defined && html`<span class="dw-soft" title=${defined.file}>${say("class at {place}", { place: defined.place })}</span>`}
      <button class="dw-icon" aria-label=${say("Close detail")} title=${say("Close (Escape)")} onclick=${() => tree.leave()}>✕</button>
    </div>
    ${own.map((finding) => findingLine(findings[finding], () => panel.reveal({ finding })))}
    ${lines.length > 0 && hopTable(lines, panel.reveal)}
    ${tensors.length ? tensorTable(tensors) : html`<p class="dw-soft">${say("no tensors of its own")}</p>`}
  `;
}

function findingLine({ severity, headline }, follow) {
  return html`
    <div class=${`dw-detail-finding dw-${severity}`}>
      <b>${say(severity)}</b> ${prose(headline)} ${link(say("why and how to fix"), follow)}
    </div>
  `;
}

function tensorTable(tensors) {
  const columns = [
    [say("tensor"), "name", "dw-mono"],
    [say("kind"), "role"],
    [say("type"), "type", "dw-mono"],
    [say("device"), (each) => chip(each.device)],
    [say("bytes"), "bytes", "dw-number"],
    [say("gradient"), "grad"],
    [say("note"), "note", "dw-soft"],
  ];
  return table(say("tensor"), columns, tensors.slice(0, MOST), { more: tensors.length - MOST });
}
