// Sizes as words, and how much each of the plans that were run counts in between.

export const MIB = 2 ** 20;
export const GIB = 2 ** 30;

// `3.00 GiB`, three digits as everywhere.
export function sizeWords(bytes) {
  const unit = bytes < GIB ? MIB : GIB;
  const number = bytes / unit;
  return `${number.toFixed(number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2)} ${unit === MIB ? "MiB" : "GiB"}`;
}

// How much each of the nearest knots counts: as `weigh_knots` in sizes.py.
export function weights(knots, at, most) {
  let above = knots.findIndex((knot) => knot > at);
  if (above < 0 || above > knots.length - 1) above = knots.length - 1;
  const first = Math.max(Math.min(above - 1, knots.length - most), 0);
  const near = knots.map((_, n) => n).slice(first, first + most);
  return near.map((n) => [n, near.reduce((share, m) => (m === n ? share : (share * (at - knots[m])) / (knots[n] - knots[m])), 1)]);
}
