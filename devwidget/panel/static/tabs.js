// Tabs with the keyboard of the ARIA practices: arrows move, Home and End jump, Tab goes into the page.
import { Component, createRef } from "preact";
import { html, newId } from "./base.js";
import { say } from "./words.js";

// `tabs` are { name, content, count, severity }; `open` is a signal with the name of the one that is shown, or of one that is not there.
export class Tabs extends Component {
  set = newId("tabs");
  list = createRef();

  select(name) {
    const { tabs, open } = this.props;
    open.value = name;
    const at = tabs.findIndex((tab) => tab.name === name);
    this.list.current.children[at].focus({ preventScroll: true });
  }

  key(event, at) {
    const { tabs } = this.props;
    const last = tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    this.select(tabs[to].name);
    event.preventDefault();
  }

  render({ tabs, open }) {
    const chosen = tabs.find(({ name }) => name === open.value) ?? tabs[0];
    return html`
      <div ref=${this.list} class="dw-tabs" role="tablist" aria-label=${say("views")}>
        ${tabs.map((tab, at) => this.tab(tab, at, tab === chosen))}
      </div>
      ${tabs.map((tab) => this.page(tab, tab === chosen))}
    `;
  }

  tab({ name, count, severity = "plain" }, at, isChosen) {
    return html`
      <button
        key=${name} class="dw-tab" role="tab" id=${`${this.set}-tab-${name}`} aria-controls=${`${this.set}-page-${name}`}
        aria-selected=${isChosen} tabindex=${isChosen ? 0 : -1} onclick=${() => this.select(name)} onkeydown=${(event) => this.key(event, at)}
      >${say(name)}${count > 0 && html`<span class=${`dw-count dw-${severity}`}>${count}</span>`}</button>
    `;
  }

  page({ name, content }, isChosen) {
    return html`
      <div
        key=${name} class="dw-page" role="tabpanel" id=${`${this.set}-page-${name}`} aria-labelledby=${`${this.set}-tab-${name}`} hidden=${!isChosen}
      >${content}</div>
    `;
  }
}
