// The filter language: words, and `device:`, `dtype:`, `kind:`, `class:`, `has:`; all must hold. Words are looked for in the
// whole path, and one of them must be in the row's own name or class: `conv1 layer4` is each conv1 below layer4.

const TESTS = {
  device: (rows, value) => byCode(rows.deviceSets, rows.device, (names) => names.some((name) => `${name}:`.startsWith(`${value}:`))),
  dtype: (rows, value) => byCode(rows.dtypeSets, rows.dtype, (names) => names.some(contains(value))),
  kind: (rows, value) => (row) => ("attribute".startsWith(value) ? rows.isAttribute(row) : !rows.isAttribute(row)),
  class: (rows, value) => byCode(rows.classes, rows.kind, contains(value)),
  has: (rows, value) => {
    if ("findings".startsWith(value)) return (row) => (rows.marks[row]?.[2].length ?? 0) > 0;
    if ("hops".startsWith(value)) return (row) => (rows.marks[row]?.[0] ?? 0) > 0;
    if ("grads".startsWith(value)) return (row) => rows.hasGradient(row) && !rows.childrenOf(row).some((child) => rows.hasGradient(child));
    return () => false;
  },
};

const contains = (value) => (text) => text.toLowerCase().includes(value);

// Each different value is tested once.
function byCode(values, codes, fits) {
  const good = values.map(fits);
  return (row) => good[codes[row]];
}

function byWord(rows, word) {
  if (word.includes(".")) return (row) => contains(word)(rows.pathOf(row));
  const name = byCode(rows.names, rows.name, contains(word));
  const kind = byCode(rows.classes, rows.kind, contains(word));
  return (row) => name(row) || kind(row);
}

// Rows that have every word at or above them, and at least one of their own; rows are in pre-order.
function byWords(rows, words) {
  const tests = words.map((word) => byWord(rows, word));
  const whole = 2 ** tests.length - 1;
  const above = new Uint32Array(rows.count);
  return (row) => {
    const own = tests.reduce((bits, test, at) => (test(row) ? bits | (1 << at) : bits), 0);
    above[row] = own | (row ? above[rows.parent[row]] : 0);
    return own !== 0 && above[row] === whole;
  };
}

// -> { kept, hits, count }: rows to show (hits and their ancestors), rows that match; null for an empty filter.
export function filterRows(rows, text) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return null;
  const keyed = (term) => term.includes(":") && Boolean(TESTS[term.split(":")[0]]);
  const words = terms.filter((term) => !keyed(term)).slice(0, 30);
  const tests = terms.filter(keyed).map((term) => {
    const [key, ...rest] = term.split(":");
    const value = rest.join(":");
    return value ? TESTS[key](rows, value) : () => true;
  });
  if (words.length) tests.unshift(byWords(rows, words)); // first, because it must see every row
  const kept = new Uint8Array(rows.count);
  const hits = new Uint8Array(rows.count);
  let count = 0;
  for (let row = 0; row < rows.count; row++) {
    if (!tests.every((test) => test(row))) continue;
    hits[row] = 1;
    count++;
    for (let at = row; at >= 0 && !kept[at]; at = rows.parent[at]) kept[at] = 1;
  }
  return { kept, hits, count };
}
