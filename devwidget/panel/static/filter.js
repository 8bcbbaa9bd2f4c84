// The filter language: words, and `device:`, `dtype:`, `kind:`, `class:`, `has:`; all must hold. Words are looked for in the
// whole path, and one of them must be in the row's own name or class: `conv1 layer4` is each conv1 below layer4.

const contains = (value) => (text) => text.toLowerCase().includes(value);

// Key -> test of a row's number for a value.
const TESTS = {
  device: ({ facts }, value) => (row) => facts[row].devices.some((name) => `${name}:`.startsWith(`${value}:`)),
  dtype: ({ facts }, value) => (row) => facts[row].dtypes.some(contains(value)),
  kind: ({ facts }, value) => (row) => facts[row].is_attribute === "attribute".startsWith(value),
  class: ({ facts }, value) => (row) => contains(value)(facts[row].class),
  has: (rows, value) => {
    const hasGradient = (row) => rows.facts[row].has_gradient;
    if ("findings".startsWith(value)) return (row) => rows.marks[row]?.[2].length > 0;
    if ("hops".startsWith(value)) return (row) => rows.marks[row]?.[0] > 0;
    if ("grads".startsWith(value)) return (row) => hasGradient(row) && !rows.childrenOf(row).some(hasGradient);
    return () => false;
  },
};

function byWord(rows, word) {
  if (word.includes(".")) return (row) => contains(word)(rows.paths[row]);
  return (row) => contains(word)(rows.names[row]) || contains(word)(rows.facts[row].class);
}

// Rows that have every word at or above them, and at least one of their own.
function byWords(rows, words) {
  const tests = words.map((word) => byWord(rows, word));
  const isAtOrAbove = (test, row) => row >= 0 && (test(row) || isAtOrAbove(test, rows.parent[row]));
  return (row) => tests.some((test) => test(row)) && tests.every((test) => isAtOrAbove(test, row));
}

// -> { kept, hits, count }: rows to show (hits and their ancestors), rows that match; null for an empty filter.
export function filterRows(rows, text) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return null;
  const words = [];
  const tests = [];
  for (const term of terms) {
    const [key, ...rest] = term.split(":");
    const value = rest.join(":");
    if (!rest.length || !TESTS[key]) words.push(term);
    else if (value) tests.push(TESTS[key](rows, value));
  }
  if (words.length) tests.push(byWords(rows, words));
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
