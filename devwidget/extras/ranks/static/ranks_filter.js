// Select ranks: `dp=(1,3), tp=2:8`, the grammar of Monarch's debugger, plus `rank=` and `state=`.
import { say } from "../../../panel/static/words.js";

const RANGE = /^(\d*):(\d*)(?::(\d+))?$/;

// At commas that stand in no bracket.
function termsOf(text) {
  const inside = text.trim().replace(/^ranks\s*\((.*)\)$/, "$1");
  return inside.split(/,(?![^(]*\))/).map((term) => term.trim()).filter(Boolean);
}

// A number, `2:8` (without 8, as a slice of Python), or a list of such in brackets -> a test of one number.
function numbersOf(text) {
  const parts = text.replace(/^[([](.*)[)\]]$/, "$1").split(",").map((part) => part.trim()).filter(Boolean);
  const tests = parts.map((part) => {
    const range = RANGE.exec(part);
    if (range) {
      const [from, to, step] = [Number(range[1] || 0), range[2] === "" ? Infinity : Number(range[2]), Number(range[3] ?? 1) || 1];
      return (number) => number >= from && number < to && (number - from) % step === 0;
    }
    if (!/^\d+$/.test(part)) throw new Error(say("`{text}` is neither a number nor a range such as `2:8`", { text: part }));
    return (number) => number === Number(part);
  });
  if (!tests.length) throw new Error(say("`{text}` contains no number", { text }));
  return (number) => tests.some((test) => test(number));
}

function testOf(term, axes) {
  const [, name, value] = /^(\w+)\s*=\s*(.+)$/.exec(term) ?? [];
  if (!name) throw new Error(say("`{text}` is not a filter such as `{axis}=2:8`", { text: term, axis: axes[0]?.[0] ?? "rank" }));
  if (name === "state") {
    const states = value.replace(/[()]/g, "").split(",").map((word) => word.trim());
    if (!states.every((word) => /^[a-z]+$/.test(word))) throw new Error(say("`{text}` is not a state", { text: value }));
    return (rank) => states.includes(rank.state);
  }
  const at = axes.findIndex(([axis]) => axis === name);
  if (at < 0 && name !== "rank") throw new Error(say("no axis `{name}`: {axes}", { name, axes: [...axes.map(([axis]) => axis), "rank", "state"].join(", ") }));
  const fits = numbersOf(value);
  return name === "rank" ? (_, number) => fits(number) : (rank) => fits(rank.at[at]);
}

// -> a set of numbers; null where no filter is written. Raises an error whose message says what is wrong.
export function filterRanks(ranks, axes, text) {
  const tests = termsOf(text).map((term) => testOf(term, axes));
  if (!tests.length) return null;
  return new Set(ranks.flatMap((rank, number) => (tests.every((test) => test(rank, number)) ? [number] : [])));
}
