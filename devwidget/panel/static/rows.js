// The rows of the module tree, what a trace adds to them, and which of them are visible in which order.

const NO_FLOW = [[], []];

export class Rows {
  // What a trace adds.
  flow = [];
  flows = [];
  marks = {};
  hops = {};
  folds = {};

  // See `report/page/tree_columns.py`.
  constructor({ names = [], name = [], kinds = [], kind = [], heads = [], details = {} }) {
    this.count = kind.length;
    this.names = name.map((code) => names[code]);
    this.facts = kind.map((code) => kinds[code]); // what a row shows besides its name; rows that look alike share it
    this.heads = heads;
    this.details = details;
    this.parent = [];
    this.paths = [];
    const above = []; // the last row at each depth
    this.facts.forEach(({ depth }, row) => {
      above[depth] = row;
      const parent = above[depth - 1] ?? -1;
      const path = parent > 0 ? `${this.paths[parent]}.${this.names[row]}` : this.names[row];
      this.parent.push(parent);
      this.paths.push(row ? path : "");
    });
    this.last = kind.map((_, row) => row); // below each row
    for (let row = this.count - 1; row > 0; row--) this.last[this.parent[row]] = Math.max(this.last[this.parent[row]], this.last[row]);
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

  flowOf(row) {
    return this.flows[this.flow[row]] ?? NO_FLOW;
  }
  hasChildren(row) {
    return this.last[row] > row;
  }

  // The row of a dotted path, or of its nearest ancestor.
  rowOf(path) {
    const row = this.paths.indexOf(path);
    if (row >= 0 || !path) return Math.max(0, row);
    return this.rowOf(path.slice(0, Math.max(0, path.lastIndexOf("."))));
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
    const upTo = (depth) => this.facts.filter((each) => each.depth <= depth).length;
    let depth = 1;
    while (upTo(depth) < this.count && upTo(depth + 1) <= most) depth += 1;
    return this.facts.map((each) => each.depth < depth);
  }

  // For sorting siblings by one column.
  orderBy({ key, cell, isDescending }) {
    const sign = isDescending ? -1 : 1;
    const of = {
      name: (row) => this.names[row],
      devices: (row) => this.facts[row].devices.join(" "),
      words: (row) => this.facts[row].texts[key],
      amount: (row) => this.facts[row].amounts[key],
      flow: (row) => this.flowOf(row).join(" → "),
      notes: (row) => this.weight(row),
    }[cell];
    const { compare } = new Intl.Collator(undefined, { numeric: true });
    return (a, b) => sign * compare(of(a), of(b)) || a - b;
  }

  weight(row) {
    const mark = this.marks[row];
    return mark ? Math.max(mark[4], mark[5]) * 1e6 + mark[1] : 0;
  }
}
