// Tabs with the keyboard of the ARIA practices: arrows move, Home and End jump, Tab goes into the page.
import { html } from "./base.js";
import { say } from "./words.js";

// `tabs` are { name, content, count, severity }; `open` is a signal with the name of the one that is shown, or of one that is not there;
// the ids of all begin with `id`.
export function Tabs({ tabs, open, id }) {
  const chosen = tabs.find(({ name }) => name === open.value) ?? tabs[0];
  const last = tabs.length - 1;

  function key(event, at) {
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    const button = event.currentTarget.parentElement.children[to];
    button.click();
    button.focus({ preventScroll: true });
    event.preventDefault();
  }

  const tab = ({ name, count, severity = "plain" }, at) => html`
    <button
      key=${name} class="dw-tab" role="tab" id=${`${id}-tab-${at}`} aria-controls=${`${id}-page-${at}`} aria-selected=${name === chosen.name}
      tabindex=${name === chosen.name ? 0 : -1} onclick=${() => (open.value = name)} onkeydown=${(event) => key(event, at)}
    >${say(name)}${count > 0 && html`<span class=${`dw-count dw-${severity}`}>${count}</span>`}</button>
  `;
  const page = ({ name, content }, at) => html`
    <div
      key=${name} class="dw-page" role="tabpanel" id=${`${id}-page-${at}`} aria-labelledby=${`${id}-tab-${at}`} hidden=${name !== chosen.name}
    >${content}</div>
  `;
  return html`
    <div class="dw-tabs" role="tablist" aria-label=${say("views")}>${tabs.map(tab)}</div>
    ${tabs.map(page)}
  `;
}
