// What extras add to the panel: the script of each is joined in front of the panel's own, and pushes its section.
//
//   name: of the state that it shows, which Python writes: of the panel's model, and of `live` while a cell runs
//   tab: name of a tab of its own
//   open(panel): called for each view with the `Panel` of `panel_widget.js`; returns these, each of which may be missing:
//     page(): what its tab has, null where there is no such tab now; with `count` and `severity` of what was found
//     beside(): content next to the picture of the devices, null for none
//     below(): content below that picture

/** @type {{ name: string, tab?: string, open: (panel: any) => any }[]} */
export const SECTIONS = [];
