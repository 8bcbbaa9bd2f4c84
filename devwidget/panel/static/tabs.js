// Tabs with the keyboard of the ARIA practices: arrows move, Home and End jump, Tab goes into the page.
import { h } from "./dom.js";
import { say } from "./words.js";

let sets = 0;

export class Tabs {
  constructor(names, shown) {
    const set = sets++;
    this.shown = shown;
    this.names = names;
    this.tabs = names.map((name, at) =>
      h("button", { class: "dw-tab", type: "button", role: "tab", id: `dw-tab-${set}-${at}`, "aria-controls": `dw-page-${set}-${at}`, onclick: () => this.select(at) }, say(name)),
    );
    this.pages = names.map((_, at) =>
      h("div", { class: "dw-page", role: "tabpanel", id: `dw-page-${set}-${at}`, "aria-labelledby": `dw-tab-${set}-${at}`, hidden: true }),
    );
    this.list = h("div", { class: "dw-tabs", role: "tablist", "aria-label": say("views") }, this.tabs);
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.select(0, false);
  }

  select(at, focus = true) {
    this.at = at;
    this.tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(place === at));
      tab.tabIndex = place === at ? 0 : -1;
      this.pages[place].hidden = place !== at;
    });
    if (focus) this.tabs[at].focus({ preventScroll: true });
    this.shown?.(this.names[at]);
  }

  open(name) {
    this.select(this.names.indexOf(name), false);
  }

  page(name) {
    return this.pages[this.names.indexOf(name)];
  }

  // A tab that is there only while there is something in it.
  offer(name, is_there) {
    const at = this.names.indexOf(name);
    this.tabs[at].hidden = !is_there;
    if (!is_there && this.at === at) this.select(this.tabs.findIndex((tab) => !tab.hidden), false);
  }

  count(name, number, severity) {
    const tab = this.tabs[this.names.indexOf(name)];
    tab.replaceChildren(say(name), number ? h("span", { class: `dw-count dw-${severity ?? "plain"}` }, number) : "");
  }

  key(event) {
    const offered = this.tabs.flatMap((tab, at) => (tab.hidden ? [] : [at]));
    const [here, last] = [offered.indexOf(this.at), offered.length - 1];
    const to = { ArrowRight: here === last ? 0 : here + 1, ArrowLeft: here ? here - 1 : last, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    this.select(offered[to]);
    event.preventDefault();
  }
}
