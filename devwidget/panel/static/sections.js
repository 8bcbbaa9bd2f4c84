// What extras add to the panel: the script of each is joined in front of the panel's own, and pushes its section.
//
//   name: of the state that it shows, which Python writes: of the panel's model, and of `live` while a cell runs
//   tab: name of a tab of its own, which is there while the section offers it
//   open(panel): called for each view with what the panel lends it; returns these, each of which may be missing:
//     draw(): draws the state, at first and when it has changed; without it the tab Devices is drawn anew
//     beside(): content next to the picture of the devices, null for none
//     below: an element below that picture
//     end(): the kernel was restarted
//     close(): the view is gone

/** @type {{ name: string, tab?: string, open: (panel: any) => any }[]} */
export const SECTIONS = [];
