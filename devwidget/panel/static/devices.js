// The Devices tab: the picture that Python has drawn, made live, and below it in words what spreads the model.
import { createRef } from "preact";
import { Fitted, html } from "./base.js";
import { traceFewer } from "./header.js";
import { chip, codeToCopy, link, moduleLink, prose, table, wordList } from "./parts.js";
import { say } from "./words.js";

// A picture as wide as its container. Details of the hovered mark are below it. `drawn` has SVG texts by the width that they are
// drawn for; `unfold(question)` asks for one with other blocks unfolded, and in a picture without it no block unfolds.
export class Picture extends Fitted {
  frame = createRef();

  // What Python draws anew is folded.
  static getDerivedStateFromProps({ drawn }, before) {
    return drawn === before.drawn ? null : { drawn, shown: drawn, opened: [], every: false, mark: null };
  }

  // A hidden picture has no room.
  fit() {
    const room = this.el.current.clientWidth;
    if (room && room !== this.state.room) this.setState({ room });
  }

  // Python has escaped every text of the model in it. Its marks are buttons here, and the first is where the keyboard comes in.
  get drawing() {
    const { shown, room } = this.state;
    const widths = Object.keys(shown).map(Number).sort((one, other) => one - other);
    const fitting = widths.filter((width) => width <= room);
    const text = shown[fitting.at(-1) ?? widths[0]] ?? "";
    const marked = text.replaceAll("<g data-mark", '<g role="button" tabindex="-1" data-mark');
    return marked.replace('role="img"', 'role="group"').replace('tabindex="-1"', 'tabindex="0"');
  }

  tell({ target }) {
    const mark = target.closest("[data-mark]");
    if (!mark || mark === this.state.mark) return;
    this.state.mark?.classList.remove("dw-now");
    mark.classList.add("dw-now");
    this.setState({ mark });
  }

  pick(mark) {
    if (!mark) return;
    this.tell({ target: mark });
    const { every, opened } = this.state;
    if (this.props.unfold && mark.dataset.unfolds) this.turn(every, [...new Set([...opened, mark.dataset.unfolds])]);
  }

  // Ask for the picture with these blocks unfolded.
  async turn(every, opened = []) {
    const { drawn, unfold } = this.props;
    this.setState({ every, opened });
    const shown = await unfold({ opened, every });
    if (shown && drawn === this.props.drawn) this.setState({ shown, mark: null });
  }

  key(event) {
    const marks = [...this.frame.current.querySelectorAll("[data-mark]")];
    const at = marks.indexOf(document.activeElement);
    const last = marks.length - 1;
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter" || event.key === " ") this.pick(marks[at]);
    else if (to === undefined) return;
    else marks[Math.max(0, Math.min(last, to))].focus();
    event.preventDefault();
  }

  render({ className, unfold, hidden }, { mark }) {
    const tell = (event) => this.tell(event);
    return html`
      <section ref=${this.el} class=${`dw-pictured ${className}`} hidden=${hidden}>
        ${unfold && this.folds()}
        <div
          ref=${this.frame} class=${unfold ? "dw-drawn dw-unfolds" : "dw-drawn"} dangerouslySetInnerHTML=${{ __html: this.drawing }}
          onpointerover=${tell} onfocusin=${tell} onkeydown=${(event) => this.key(event)}
          onclick=${({ target }) => this.pick(target.closest("[data-mark]"))}
        />
        <p class="dw-picked dw-soft" role="status">${mark ? this.told(mark) : say("Hover for details; click a stacked block to expand it.")}</p>
      </section>
    `;
  }

  folds() {
    const { every, opened } = this.state;
    const button = (all, words) => html`
      <button class="dw-plain dw-look" aria-pressed=${all === every && !opened.length} onclick=${() => this.turn(all)}>${words}</button>
    `;
    return html`<div class="dw-pictured-top" role="group" aria-label=${say("blocks")}>${button(false, say("folded"))}${button(true, say("all blocks"))}</div>`;
  }

  told(mark) {
    const { reveal } = this.props;
    const [first, ...rest] = mark.querySelector("title").textContent.split("\n");
    const { module, number } = mark.dataset;
    const line = number && link(say("show its line"), () => reveal({ move: mark.dataset }));
    return html`<b>${first}</b>${rest.map((text) => html`<span>${text}</span>`)}${module ? moduleLink({ path: module, module }, reveal) : line}`;
  }
}

// One call of DataParallel in figures and words.
export function callSection(call, panel) {
  return html`
    <section class="dw-parallel">
      <h4>${call.title}</h4>
      <p class="dw-soft">${call.summary}</p>
      ${call.replicas.length > 0 && replicaTable(call)}
      ${wordList(call.words)}
      ${call.advice.map((each) => advised(each, panel))}
    </section>
  `;
}

function advised({ text, samples }, panel) {
  return html`
    <div class="dw-advice">
      <span class="dw-tag">${say("advice")}</span> ${prose(text)} ${traceFewer(samples, panel, "dw-button")}
    </div>
  `;
}

function replicaTable(call) {
  const columns = [
    [say("device"), (each) => chip(each.device)],
    [say("card"), (each) => html`<span title=${each.uuid}>${each.card}</span>`, "dw-soft dw-nowrap"],
    [say("samples"), "samples", "dw-number"],
    [say("batch in"), "input", "dw-number"],
    [say("parameters in"), "parameters", "dw-number"],
    [say("outputs"), "output", "dw-number"],
    [say("gradients out"), "gradients", "dw-number"],
    [say("peak"), "peak", "dw-number"],
    call.replicas.some((each) => each.time) && [say("forward"), "time", "dw-number"],
  ];
  const idle = call.idle.map((device) => ({ device, card: say("idle: it got no samples") }));
  return table(say("replicas of {title}", { title: call.title }), columns, [...call.replicas, ...idle]);
}

// Wrappers, shards, hooks and device maps: what this process holds of each part.
export function spreadSection(card, reveal) {
  const columns = [
    [say("part"), 0],
    [say("modules"), 1, "dw-number"],
    [say("in this process"), 2],
    [say("total"), 3, "dw-number"],
    card.rows.some((row) => row[4]) && [say("note"), (row) => row[4], "dw-soft"],
  ];
  return html`
    <section class="dw-parallel dw-spread" data-kind=${card.kind}>
      <h4>${card.title} ${card.path !== null && moduleLink(card, reveal)}</h4>
      ${wordList(card.words)}
      ${card.code && codeToCopy(card.code, say("Copy the code"))}
      ${card.rows.length > 0 && table(say("parts of {title}", { title: card.title }), columns, card.rows, { more: card.more })}
    </section>
  `;
}
