// The packed columns of the module tree, and which rows are visible in which order.

function numbers(kind, view) {
  if (!view || !view.byteLength) return new kind(0);
  return new kind(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)); // copied: offsets may be unaligned
}

// The table out of one gzipped block; see `report/page/tree_columns.py`.
export async function unpacked(table) {
  if (!table?.packed) return table ?? {};
  const stream = new Blob([table.packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const block = await new Response(stream).arrayBuffer();
  const start = 4 + new DataView(block).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, start - 4)));
  const columns = Object.entries(facts.columns).map(([name, [from, length]]) => [name, new DataView(block, start + from, length)]);
  return { ...facts, ...Object.fromEntries(columns) };
}

const NO_FLOW = [[], []];

export class Rows {
  constructor(table) {
    this.count = table.rows ?? 0;
    this.names = table.names ?? [];
    this.classes = table.classes ?? [];
    this.deviceSets = table.devices ?? [];
    this.dtypeSets = table.dtypes ?? [];
    this.notes = table.notes ?? {};
    this.details = table.details ?? {};
    this.name = numbers(Uint32Array, table.name);
    this.kind = numbers(Uint32Array, table.class);
    this.device = numbers(Uint32Array, table.device);
    this.dtype = numbers(Uint32Array, table.dtype);
    this.depth = numbers(Uint16Array, table.depth);
    this.flags = numbers(Uint8Array, table.flags);
    this.heads = table.heads ?? [];
    this.codes = Object.fromEntries(this.heads.map(({ key }) => [key, numbers(Uint32Array, table[`column:${key}`])]));
    this.flow = new Uint32Array(0);
    this.flows = [];
    this.marks = {};
    this.hops = {};
    this.folds = {};
    this.parent = new Int32Array(this.count).fill(-1);
    this.last = new Int32Array(this.count);
    this.measure();
  }

  // `last` row below each row, and its parent; rows are in pre-order.
  measure() {
    const open = [];
    for (let row = 0; row < this.count; row++) {
      while (open.length && this.depth[open[open.length - 1]] >= this.depth[row]) this.last[open.pop()] = row - 1;
      if (open.length) this.parent[row] = open[open.length - 1];
      open.push(row);
    }
    while (open.length) this.last[open.pop()] = this.count - 1;
  }

  mark({ flow, flows = [], marks = {}, hops = {}, folds = {} }) {
    Object.assign(this, { flow: numbers(Uint32Array, flow), flows, marks, hops, folds });
  }

  // Of identical blocks that are folded into their first: the last one.
  lastOfFold(first) {
    let row = first;
    for (let more = 1; more < this.folds[first]; more++) row = this.last[row] + 1;
    return row;
  }

  // The first of identical blocks behind which a row hides.
  foldOver(row) {
    const holds = (first) => first < row && this.parent[first] === this.parent[row] && row <= this.lastOfFold(first);
    return Object.keys(this.folds).map(Number).find(holds);
  }

  nameOf(row) {
    return this.names[this.name[row]];
  }
  classOf(row) {
    return this.classes[this.kind[row]];
  }
  devicesOf(row) {
    return this.deviceSets[this.device[row]] ?? [];
  }
  // What a column of words or amounts says.
  textOf({ key, texts }, row) {
    return texts[this.codes[key][row]] ?? "";
  }
  flowOf(row) {
    return (this.flow.length ? this.flows[this.flow[row]] : null) ?? NO_FLOW;
  }
  hasChildren(row) {
    return this.last[row] > row;
  }
  isAttribute(row) {
    return (this.flags[row] & 2) !== 0;
  }
  hasGradient(row) {
    return (this.flags[row] & 1) !== 0;
  }

  pathOf(row) {
    const parts = [];
    for (let at = row; at > 0; at = this.parent[at]) parts.unshift(this.nameOf(at));
    return parts.join(".");
  }

  // The row of a dotted path, or of its nearest ancestor; names may hold dots themselves.
  rowOf(path) {
    let row = 0;
    let rest = path ?? "";
    while (rest) {
      const fits = (child) => rest === this.nameOf(child) || rest.startsWith(`${this.nameOf(child)}.`);
      const child = this.childrenOf(row).find(fits);
      if (child === undefined) break;
      rest = rest.slice(this.nameOf(child).length + 1);
      row = child;
    }
    return row;
  }

  // Rows from top to bottom: `open` says which are expanded, `kept` (a Uint8Array or null) which a filter left, `order` sorts siblings.
  // Without these two, identical blocks are one row where `unfolded` does not name their first.
  visible(open, kept, order, unfolded) {
    const shown = [];
    const isFolding = !kept && !order;
    const visit = (row) => {
      if (kept && !kept[row]) return;
      shown.push(row);
      if (!open[row] && !kept) return;
      let folded = row; // the last of the blocks that hide behind one
      for (const child of this.childrenOf(row, order)) {
        if (isFolding && child <= folded) continue;
        visit(child);
        if (this.folds[child] && !unfolded.has(child)) folded = this.lastOfFold(child);
      }
    };
    if (this.count) visit(0);
    return shown;
  }

  childrenOf(row, order) {
    const children = [];
    for (let at = row + 1; at <= this.last[row]; at = this.last[at] + 1) children.push(at);
    return order ? children.sort(order) : children;
  }

  // Expand level by level while the table stays short enough to take in.
  firstOpen(most) {
    const upTo = (depth) => this.depth.filter((each) => each <= depth).length;
    let depth = 1;
    while (upTo(depth) < this.count && upTo(depth + 1) <= most) depth += 1;
    return Uint8Array.from(this.depth, (each) => Number(each < depth));
  }

  // For sorting siblings by one column; the codes of an amount rise with it.
  orderBy(key, descending) {
    const head = this.heads.find((each) => each.key === key);
    const sign = descending ? -1 : 1;
    const values = {
      name: (row) => this.nameOf(row),
      devices: (row) => this.devicesOf(row).join(" "),
      words: (row) => this.textOf(head, row),
      amount: (row) => this.codes[key][row],
      flow: (row) => this.flowOf(row).join(" → "),
      notes: (row) => this.weight(row),
    };
    const of = values[head.cell];
    const { compare } = new Intl.Collator(undefined, { numeric: true });
    return (a, b) => sign * compare(of(a), of(b)) || a - b;
  }

  weight(row) {
    const mark = this.marks[row];
    return mark ? Math.max(mark[4], mark[5]) * 1e6 + mark[1] : 0;
  }
}
