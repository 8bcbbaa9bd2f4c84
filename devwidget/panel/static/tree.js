// The virtualised tree table: only the rows in sight are in the page, whatever the size of the model.
import { Component, createRef } from "preact";
import { Fitted, html, newId } from "./base.js";
import { chip } from "./parts.js";
import { say, sayCount } from "./words.js";

const ROW = 24;
const SPARE = 24;
const CHIP = { whole: 71, short: 34 }; // pixels, with the gap to the next one
const WIDTHS = ["wide", "narrow", "narrowest"]; // of the table, as `tree.css` has them
const SEVERITIES = ["", "info", "warning", "error"];
const SIGN = { info: "ℹ", warning: "▲", error: "✖" };

// A number with its noun, which a narrow table says to screen readers alone.
function numbered(number, text) {
  const end = text.indexOf(String(number)) + String(number).length;
  return html`${text.slice(0, end)}<span class="dw-noun">${text.slice(end)}</span>`;
}

// A cell's classes say what it is, and at which widths of the table it is left out.
function classOf({ key, cell, widths }, ...more) {
  const hidden = WIDTHS.filter((_, at) => !widths[at]).map((width) => `dw-not-${width}`);
  return ["dw-cell", `dw-${key}`, `dw-is-${cell}`, ...hidden, ...more].join(" ");
}

function badge(severity, text, isQuiet) {
  const look = `dw-badge dw-${severity}${isQuiet ? " dw-quiet" : ""}`;
  return html`<span class=${look}><span aria-hidden="true">${SIGN[severity]}</span> ${text}</span>`;
}

// One row. It is drawn again only where `version`, its place or its selection differs: scrolling draws new rows alone.
class Row extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((key) => next[key] !== this.props[key]);
  }

  render({ tree, row, place, id, isSelected, deviceWidth }) {
    const { rows, found } = tree;
    const mark = rows.marks[row];
    const severity = SEVERITIES[mark?.[4] ?? 0];
    const looks = ["dw-row", found && !found.hits[row] && "dw-dim"];
    if (severity) looks.push(`dw-${severity}`);
    else if (mark?.[0]) looks.push("dw-row-hop");
    return html`
      <div
        class=${looks.filter(Boolean).join(" ")} role="row" id=${id} style=${`top:${place * ROW}px`} data-path=${rows.pathOf(row)} data-row=${row}
        data-severity=${severity || null} aria-level=${rows.depth[row] + 1} aria-rowindex=${place + 2}
        aria-expanded=${rows.hasChildren(row) ? tree.isExpanded(row) : null} aria-selected=${isSelected}
      >
        ${rows.heads.map((head) => drawCell(head, tree, row, deviceWidth))}
      </div>
    `;
  }
}

function drawCell(head, tree, row, deviceWidth) {
  const { rows } = tree;
  switch (head.cell) {
    case "name":
      return nameCell(tree, row);
    case "devices":
      return gridCell(head, deviceChips(rows.devicesOf(row), deviceWidth - 14));
    case "flow":
      return flowCell(head, rows.flowOf(row));
    case "notes":
      return gridCell(head, rowNotes(tree, row));
  }
  const text = rows.textOf(head, row);
  return gridCell(head, text, text);
}

const gridCell = (head, content, title = "", ...looks) => html`<div class=${classOf(head, ...looks)} role="gridcell" title=${title || null}>${content}</div>`;

// Chips where data leaves on another device than it came in on; a quiet word where it stays.
function flowCell(head, [into, out]) {
  const text = [into, out].map((side) => side.join(" ") || "–").join(" → ");
  const title = into.length || out.length ? text : "";
  if (into.join() === out.join()) return gridCell(head, into.join(" "), title);
  const short = into.length + out.length > 2 ? "dw-short" : ""; // else names would be cut
  return gridCell(head, html`${flowSide(into)} → ${flowSide(out)}`, title, "dw-moves", short);
}

function nameCell(tree, row) {
  const { rows } = tree;
  const isFolded = tree.isFolded(row);
  const count = rows.folds[row];
  const name = isFolded ? `${rows.nameOf(row)}–${rows.nameOf(rows.lastOfFold(row))}` : rows.nameOf(row);
  const path = rows.pathOf(row) || rows.nameOf(row);
  const title = isFolded ? say("{path} and {count} identical blocks", { path, count: count - 1 }) : path;
  let twist = "dw-twist dw-leaf";
  if (rows.hasChildren(row)) twist = tree.isExpanded(row) ? "dw-twist dw-open" : "dw-twist";
  const kind = row === 0 || rows.isAttribute(row) ? "" : rows.classOf(row);
  const repeats = isFolded && html`<span class="dw-class dw-repeats">${say("{count} × {kind}, identical", { count, kind })}</span>`;
  return html`
    <div class="dw-cell dw-module" role="rowheader" style=${`padding-left:${8 + rows.depth[row] * 14}px`} title=${title}>
      <span class=${twist} aria-hidden="true" />
      <span class="dw-name">${name}</span>
      ${repeats || html`<span class="dw-class">${kind}</span>`}
    </div>
  `;
}

function deviceChips(devices, room) {
  const fits = (width) => devices.length * width <= room;
  if (devices.length < 2 || fits(CHIP.whole)) return devices.map(chip);
  if (fits(CHIP.short)) return html`<span class="dw-short" title=${devices.join(" ")}>${devices.map(chip)}</span>`;
  return html`<span class="dw-mono" title=${devices.join(" ")}>${inRuns(devices)}</span>`;
}

function rowNotes(tree, row) {
  const { rows, found } = tree;
  const note = rows.notes[row];
  const isShut = rows.hasChildren(row) && !tree.open[row] && !found;
  const fold = tree.isFolded(row) ? say("unfold") : say("fold {count}", { count: rows.folds[row] });
  return html`
    ${rows.marks[row] && markNotes(rows.marks[row], isShut)}
    ${rows.isAttribute(row) && html`<span class="dw-soft">${say("unregistered")}</span>`}
    ${tree.isFoldable(row) && html`<button class="dw-link dw-fold" tabindex="-1" title=${say("key: +")}>${fold}</button>`}
    ${tree.isFolded(row) && html`<span class="dw-soft">${say("sizes of one block")}</span>`}
    ${note && html`<span class="dw-soft" title=${note}>${note}</span>`}
  `;
}

// `cpu cuda:0-7`: devices of one kind whose numbers follow each other as one.
function inRuns(devices) {
  const runs = [];
  for (const device of devices) {
    const [kind, number] = device.split(":");
    const last = runs[runs.length - 1];
    if (last?.kind === kind && last.to + 1 === Number(number)) last.to += 1;
    else runs.push({ device, kind, from: Number(number), to: Number(number) });
  }
  return runs.map(({ device, from, to }) => (to > from ? `${device}-${to}` : device)).join(" ");
}

function flowSide(devices) {
  if (devices.length <= 2) return devices.map(chip);
  return html`<span class="dw-soft">${numbered(devices.length, say("{count} devices", { count: devices.length }))}</span>`;
}

// Findings and hops of a row, and of those below it where it is shut.
function markNotes([ownHops, allHops, own, all, severity, worst], isShut) {
  const below = all.filter((number) => !own.includes(number)).length;
  const hops = isShut ? allHops : ownHops;
  return html`
    ${own.length > 0 && badge(SEVERITIES[severity], numbered(own.length, sayCount("{count} finding", "{count} findings", own.length)))}
    ${below > 0 && (isShut || !own.length) && badge(SEVERITIES[worst], say("{count} below", { count: below }), !isShut)}
    ${hops > 0 && html`<span class="dw-hop">${numbered(hops, sayCount("⇄ {count} hop", "⇄ {count} hops", hops))}</span>`}
  `;
}

// `tree` is what it shows, and opens the drawer of a row.
export class TreeTable extends Fitted {
  id = newId("tree");
  head = createRef();
  state = { top: 0, height: 480, deviceWidth: 220 };
  goal = -1; // where to scroll to once the rows are drawn

  // Where the table is, and how large: what is the same draws nothing.
  fit() {
    const grid = this.el.current;
    if (this.goal >= 0) grid.scrollTop = this.goal;
    this.goal = -1;
    const deviceWidth = this.head.current.querySelector(".dw-is-devices")?.offsetWidth || 220;
    const seen = { top: grid.scrollTop, height: grid.clientHeight || 480, deviceWidth };
    if (Object.keys(seen).some((key) => seen[key] !== this.state[key])) this.setState(seen);
  }

  focus() {
    this.el.current.focus({ preventScroll: true });
  }

  // Have the active row in sight, in the middle if it was not.
  showActive(inMiddle) {
    const { active } = this.props.tree;
    const { clientHeight, scrollTop } = this.el.current;
    const room = clientHeight - this.head.current.offsetHeight - ROW;
    const top = active * ROW;
    if (inMiddle) this.goal = Math.max(0, top - clientHeight / 2);
    else if (top < scrollTop) this.goal = top;
    else if (top > scrollTop + room) this.goal = top - room;
    this.setState({});
  }

  click(event) {
    const line = event.target.closest("[data-row]");
    if (!line) return;
    const { tree } = this.props;
    const row = Number(line.dataset.row);
    tree.activate(tree.shown.indexOf(row));
    if (event.target.closest(".dw-fold")) tree.fold(row);
    else if (event.target.closest(".dw-twist")) tree.toggle(row);
    else tree.pick(row);
    this.focus();
  }

  key(event) {
    const { tree } = this.props;
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !tree.shown.length) return;
    const page = Math.max(1, Math.floor(this.state.height / ROW) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) tree.activate(tree.active + moves[event.key]);
    else if (!this.act(event)) return;
    event.preventDefault();
    this.showActive();
  }

  // -> whether the key means something.
  act(event) {
    const { tree } = this.props;
    const { key } = event;
    if (key === "ArrowRight") tree.right();
    else if (key === "ArrowLeft") tree.left();
    else if (key === "Enter" || key === " ") tree.pick(tree.row);
    else if (key === "*") tree.openAll(true);
    else if (key === "+") tree.fold(tree.row);
    else if (key === "Escape") {
      if (!tree.leave()) return false;
      event.stopPropagation();
    } else if (key.length === 1) tree.typeAhead(key);
    else return false;
    return true;
  }

  render({ tree }, { top, height }) {
    tree.version.value; // each change draws again
    const { rows, shown, active } = tree;
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const stop = Math.min(shown.length, Math.ceil((top + height) / ROW) + SPARE);
    const tracks = WIDTHS.map((width, at) => `--dw-${width}:${rows.heads.map((head) => head.widths[at]).join(" ")}`).join(";");
    const isPainted = active >= first && active < stop;
    const room = shown.length || 2; // two for the words that say why there is none
    return html`
      <div class="dw-tree" style=${tracks}>
        <div
          ref=${this.el} class="dw-grid" role="treegrid" tabindex="0" aria-label=${say("modules")} aria-readonly="true"
          aria-rowcount=${shown.length + 1} aria-activedescendant=${isPainted ? `${this.id}-${shown[active]}` : null}
          onscroll=${() => this.fit()} onkeydown=${(event) => this.key(event)}
          onfocus=${(event) => event.target.matches(":focus-visible") && tree.meet() /* a mouse comes by its click */}
        >
          <div role="rowgroup" class="dw-head-group">
            <div ref=${this.head} class="dw-row dw-head" role="row" aria-rowindex="1">${rows.heads.map((head) => headCell(head, tree))}</div>
          </div>
          <div class="dw-body" role="rowgroup" style=${`height:${room * ROW}px`} onclick=${(event) => this.click(event)}>
            ${shown.slice(first, stop).map((row, at) => this.row(row, first + at))}
            ${!shown.length && noRow(tree)}
          </div>
        </div>
        <span class="dw-hidden" role="status">${tree.filterText && sayCount("{count} row matches", "{count} rows match", tree.found?.count ?? 0)}</span>
      </div>
    `;
  }

  row(row, place) {
    const { tree } = this.props;
    const { deviceWidth } = this.state;
    const isSelected = tree.isMet && place === tree.active;
    const facts = { tree, row, place, deviceWidth, isSelected, version: tree.content, id: `${this.id}-${row}` };
    return html`<${Row} key=${row} ...${facts} />`;
  }
}

function headCell(head, tree) {
  const [column, isDescending] = tree.sort ?? [];
  const order = isDescending ? "descending" : "ascending";
  return html`
    <div class=${classOf(head)} role="columnheader" aria-sort=${column === head.key ? order : "none"} data-column=${head.key}>
      <button tabindex="-1" onclick=${() => tree.sortBy(head)}>${head.title}</button>
    </div>
  `;
}

function noRow({ filterText }) {
  const words = filterText ? say("No row matches the filter. Clear it to see all rows.") : say("No modules.");
  return html`<div class="dw-empty" role="row"><span role="gridcell">${words}</span></div>`;
}
