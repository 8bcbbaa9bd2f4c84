// The words of a page, written in English where they are said; those of another language come with the widget's state.

let translations = Object.create(null);

// Template -> template in the language of reports, for what `report/page/assets.py` finds in these files.
export function learn(words) {
  translations = Object.assign(Object.create(null), words);
}

// A template with its facts. A word that stands in a table is marked by `word` and said later; of any other text nothing is known.
export function say(template, facts = {}) {
  return (translations[template] ?? template).replace(/\{(\w+)\}/g, (all, name) => facts[name] ?? all);
}

export function sayCount(one, many, count) {
  return say(count === 1 ? one : many, { count });
}

// Parts behind each other, with the comma of the language between them; empty ones are left out.
export function inRow(parts) {
  const [start = "", ...others] = parts.filter(Boolean);
  return others.reduce((first, second) => say("{first}, {second}", { first, second }), start);
}

export const word = (template) => template;
