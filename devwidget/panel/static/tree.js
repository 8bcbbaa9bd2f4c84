// The module tree: a filter, a virtualised table, of which only the rows in sight are in the page, and the drawer of one row.
import { createRef } from "preact";
import { Detail } from "./detail.js";
import { Fitted, html, newId } from "./base.js";
import { chip } from "./parts.js";
import { say, sayCount } from "./words.js";

const ROW = 24;
const SPARE = 20;
const MOST_CHIPS = 4;
const WIDTHS = ["wide", "narrow", "narrowest"]; // of the table, as `tree.css` has them
const SEVERITIES = ["", "info", "warning", "error"];
const SIGN = { info: "ℹ", warning: "▲", error: "✖" };
const EXAMPLES = ["device:cpu", "dtype:float16", "kind:attribute", "has:finding", "has:hop", "has:grad", "class:Linear"];

export function ModuleTree({ tree }) {
  tree.version.value; // each change draws again
  const id = `${tree.panel.id}-filters`;
  const plain = (text, label, act) => html`<button class="dw-plain" aria-label=${label} onclick=${act}>${text}</button>`;
  return html`
    <div class="dw-modules">
      <div class="dw-toolbar">
        <input
          class="dw-input dw-filter" type="search" list=${id} value=${tree.filterText} aria-label=${say("filter rows")}
          placeholder=${say("filter: part of a path, device:cuda:1, has:finding …")} oninput=${(event) => tree.filter(event.target.value)}
        />
        <datalist id=${id}>${EXAMPLES.map((value) => html`<option value=${value} />`)}</datalist>
        ${plain(say("expand"), say("Expand all rows"), () => tree.openAll(true))}
        ${plain(say("collapse"), say("Collapse all rows"), () => tree.openAll(false))}
      </div>
      <div class="dw-split"><${TreeTable} ref=${tree.table} tree=${tree} /><${Drawer} tree=${tree} /></div>
    </div>
  `;
}

function Drawer({ tree }) {
  const { row, content, words } = tree.detail.value ?? {};
  return html`
    <section ref=${tree.drawer} class="dw-detail" aria-label=${say("row detail")} hidden=${!tree.detail.value}>
      ${content ? html`<${Detail} tree=${tree} row=${row} detail=${content} />` : html`<p class="dw-soft">${words}</p>`}
    </section>
  `;
}

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

const gridCell = (head, content, title = "", ...looks) => html`<div class=${classOf(head, ...looks)} role="gridcell" title=${title || null}>${content}</div>`;

// What stands in a cell of each kind.
const CELLS = {
  name: nameCell,
  devices: (head, { rows }, row) => gridCell(head, deviceChips(rows.facts[row])),
  flow: flowCell,
  notes: (head, tree, row) => gridCell(head, rowNotes(tree, row)),
  words: textCell,
  amount: textCell,
};

function textCell(head, { rows }, row) {
  const text = rows.facts[row].texts[head.key];
  return gridCell(head, text, text);
}

// Chips where data leaves on another device than it came in on; a quiet word where it stays.
function flowCell(head, { rows }, row) {
  const [into, out] = rows.flowOf(row);
  const text = [into, out].map((side) => side.join(" ") || "–").join(" → ");
  const title = into.length || out.length ? text : "";
  if (into.join() === out.join()) return gridCell(head, into.join(" "), title);
  return gridCell(head, several(into.length + out.length, html`${flowSide(into)} → ${flowSide(out)}`), title, "dw-moves");
}

function flowSide(devices) {
  if (devices.length <= 2) return devices.map(chip);
  return html`<span class="dw-soft">${numbered(devices.length, say("{count} devices", { count: devices.length }))}</span>`;
}

function nameCell(_, tree, row) {
  const { rows } = tree;
  const { depth, is_attribute: isAttribute, class: kind } = rows.facts[row];
  const name = rows.names[row];
  const isFolded = tree.isFolded(row);
  const count = rows.folds[row];
  const path = rows.paths[row] || name;
  const title = isFolded ? say("{path} and {count} identical blocks", { path, count: count - 1 }) : path;
  let twist = "dw-twist dw-leaf";
  if (rows.hasChildren(row)) twist = tree.isExpanded(row) ? "dw-twist dw-open" : "dw-twist";
  const repeats = isFolded && html`<span class="dw-class dw-repeats">${say("{count} × {kind}, identical", { count, kind })}</span>`;
  return html`
    <div class="dw-cell dw-module" role="rowheader" style=${`padding-left:${8 + depth * 14}px`} title=${title}>
      <span class=${twist} aria-hidden="true" />
      <span class="dw-name">${isFolded ? `${name}–${rows.names[rows.lastOfFold(row)]}` : name}</span>
      ${repeats || html`<span class="dw-class">${row === 0 || isAttribute ? "" : kind}</span>`}
    </div>
  `;
}

function deviceChips({ devices, device_runs: runs }) {
  if (devices.length > MOST_CHIPS) return html`<span class="dw-mono" title=${devices.join(" ")}>${runs}</span>`;
  return several(devices.length, devices.map(chip), devices.join(" "));
}

// `tree.css` shortens chips that have no room beside each other.
const several = (count, chips, title = null) => html`<span class="dw-several" style=${`--dw-count:${count}`} title=${title}>${chips}</span>`;

function rowNotes(tree, row) {
  const { rows, found } = tree;
  const { note, is_attribute: isAttribute } = rows.facts[row];
  const isShut = rows.hasChildren(row) && !tree.open[row] && !found;
  const fold = tree.isFolded(row) ? say("unfold") : say("fold {count}", { count: rows.folds[row] });
  return html`
    ${rows.marks[row] && markNotes(rows.marks[row], isShut)}
    ${isAttribute && html`<span class="dw-soft">${say("unregistered")}</span>`}
    ${tree.isFoldable(row) && html`<button class="dw-link dw-fold" tabindex="-1" title=${say("key: +")}>${fold}</button>`}
    ${tree.isFolded(row) && html`<span class="dw-soft">${say("sizes of one block")}</span>`}
    ${note && html`<span class="dw-soft" title=${note}>${note}</span>`}
  `;
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
class TreeTable extends Fitted {
  id = newId("tree");
  head = createRef();
  state = { top: 0, height: 480 };
  goal = -1; // where to scroll to once the rows are drawn

  // Where the table is, and how large: what is the same draws nothing.
  fit() {
    const grid = this.el.current;
    if (this.goal >= 0) grid.scrollTop = this.goal;
    this.goal = -1;
    const seen = { top: grid.scrollTop, height: grid.clientHeight || 480 };
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
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !tree.shown.length) return;
    const page = Math.max(1, Math.floor(this.state.height / ROW) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const acts = {
      ArrowRight: () => tree.right(),
      ArrowLeft: () => tree.left(),
      Enter: () => tree.pick(tree.row),
      " ": () => tree.pick(tree.row),
      "*": () => tree.openAll(true),
      "+": () => tree.fold(tree.row),
    };
    if (key === "Escape" && tree.leave()) event.stopPropagation();
    else if (key in moves) tree.activate(tree.active + moves[key]);
    else if (key in acts) acts[key]();
    else if (key.length === 1) tree.typeAhead(key);
    else return;
    event.preventDefault();
    this.showActive();
  }

  render({ tree }, { top, height }) {
    tree.version.value; // each change draws again
    const { rows, shown, active } = tree;
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const stop = Math.min(shown.length, Math.ceil((top + height) / ROW) + SPARE);
    const tracks = WIDTHS.map((width, at) => `--dw-${width}:${rows.heads.map((head) => head.widths[at]).join(" ")}`).join(";");
    const isPainted = active >= first && active < stop;
    const room = shown.length || 2; // two for the words that say why there is none
    const meet = ({ target }) => !tree.isMet && target.matches(":focus-visible") && tree.activate(active); // a mouse comes by its click
    return html`
      <div class="dw-tree" style=${tracks}>
        <div
          ref=${this.el} class="dw-grid" role="treegrid" tabindex="0" aria-label=${say("modules")} aria-readonly="true"
          aria-rowcount=${shown.length + 1} aria-activedescendant=${isPainted ? `${this.id}-${shown[active]}` : null}
          onscroll=${() => this.fit()} onkeydown=${(event) => this.key(event)} onfocus=${meet}
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
    const { rows, found } = tree;
    const mark = rows.marks[row];
    const severity = SEVERITIES[mark?.[4] ?? 0];
    const looks = ["dw-row", found && !found.hits[row] && "dw-dim"];
    if (severity) looks.push(`dw-${severity}`);
    else if (mark?.[0]) looks.push("dw-row-hop");
    return html`
      <div
        key=${row} class=${looks.filter(Boolean).join(" ")} role="row" id=${`${this.id}-${row}`} style=${`top:${place * ROW}px`} data-path=${rows.paths[row]}
        data-row=${row} data-severity=${severity || null} aria-level=${rows.facts[row].depth + 1} aria-rowindex=${place + 2}
        aria-expanded=${rows.hasChildren(row) ? tree.isExpanded(row) : null} aria-selected=${tree.isMet && place === tree.active}
      >
        ${rows.heads.map((head) => CELLS[head.cell](head, tree, row))}
      </div>
    `;
  }
}

function headCell(head, tree) {
  const order = tree.sort?.isDescending ? "descending" : "ascending";
  return html`
    <div class=${classOf(head)} role="columnheader" aria-sort=${tree.sort?.key === head.key ? order : "none"} data-column=${head.key}>
      <button tabindex="-1" onclick=${() => tree.sortBy(head)}>${head.title}</button>
    </div>
  `;
}

function noRow({ filterText }) {
  const words = filterText ? say("No row matches the filter. Clear it to see all rows.") : say("No modules.");
  return html`<div class="dw-empty" role="row"><span role="gridcell">${words}</span></div>`;
}
