// Figures: plotly.js comes from Python once per page; colours of text follow the page's theme.
import { h } from "./dom.js";
import { say } from "./words.js";

const CONFIG = { displaylogo: false, displayModeBar: false, showSendToCloud: false, doubleClick: false };
const NARROW = 900; // pixels, below which a figure is drawn with `spec.narrow`: shorter names
const LOADED = Symbol.for("devwidget.plotly");

// -> Promise of the Plotly object, shared by all panels of this page.
export function loadPlotly(codeModel) {
  globalThis[LOADED] ??= unpack(codeModel.get("code")).catch((error) => {
    globalThis[LOADED] = undefined; // the next figure may try again
    throw error;
  });
  return globalThis[LOADED];
}

async function unpack(view) {
  const packed = new Blob([view]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(packed).text();
  const module = { exports: {} };
  new Function("module", "exports", "define", source)(module, module.exports, undefined);
  return module.exports;
}

// Of colours that are one for light pages and one for dark ones the one to draw with: plotly knows no CSS functions.
function inScheme(value, dark) {
  if (typeof value === "string") return value.startsWith("light-dark(") ? value.slice(11, -1).split(", ")[dark ? 1 : 0] : value;
  if (!value || typeof value !== "object" || ArrayBuffer.isView(value) || typeof value[0] === "number") return value;
  for (const key of Object.keys(value)) value[key] = inScheme(value[key], dark);
  return value;
}

function lineAt(x, color) {
  return { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color, width: 1.5, dash: "dash" }, name: "here" };
}

// Of what is at the place of a click: the facts of a mark that leads on, else of what is nearest.
function factsOf(points) {
  const nearest = points.find(({ customdata }) => customdata?.[2]) ?? points[0];
  return nearest?.customdata ?? nearest?.data?.meta;
}

// One figure. What it shows has a version: it is drawn when it is in sight and drew another version, or at another width.
export class Figure {
  constructor(plotly, className, clicked) {
    this.plotly = plotly; // () => Promise of Plotly
    this.name = className.replace("dw-", "");
    this.clicked = clicked; // called with the custom data of a clicked mark, or with the meta of a clicked area
    this.plot = h("div", { class: "dw-plot" });
    this.legend = h("div", { class: "dw-legend" });
    this.spot = null; // [place, seconds] to point at
    this.version = 0; // of what is to be seen: data, place, theme
    this.drawn = { version: -1, width: 0 }; // what is on the page
    this.failure = h("p", { class: "dw-empty", hidden: true });
    this.canvas = h("div", { class: "dw-canvas", role: "img" }, this.plot);
    this.el = h("div", { class: `dw-figure ${className}` }, this.legend, this.failure, this.canvas);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.el);
    this.themes = new MutationObserver(() => setTimeout(() => this.change(), 400)); // the theme's style sheet comes after its name
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.turned = () => this.change();
    this.scheme.addEventListener("change", this.turned);
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  }

  show(spec) {
    this.spec = spec;
    this.spot = null;
    this.el.hidden = !spec;
    if (!spec) return;
    this.canvas.style.height = `${spec.layout.height}px`;
    this.canvas.setAttribute("aria-label", spec.words);
    const entry = ([name, colour]) => h("span", null, colour ? h("i", { style: `background:${colour}`, "aria-hidden": "true" }) : "", name); // of a group no colour
    this.legend.replaceChildren(...(spec.legend ?? []).map(entry));
    this.change();
  }

  change() {
    this.version += 1;
    this.fit();
  }

  // Point at a place, where it is by order and by time.
  point(spot) {
    this.spot = spot;
    this.change();
  }

  // Draw what is not on the page yet; a hidden figure has no width, and is asked again when it is shown.
  fit() {
    if (this.isBehind()) this.draw();
  }

  isBehind() {
    const width = this.el.clientWidth;
    return this.spec && width && !this.closed && (this.version !== this.drawn.version || width !== this.drawn.width);
  }

  async draw() {
    try {
      const Plotly = await this.plotly();
      if (!this.isBehind()) return; // hidden meanwhile, or drawn by another call
      this.drawn = { version: this.version, width: this.el.clientWidth };
      const { data, layout } = this.styled();
      await Plotly.react(this.plot, data, layout, CONFIG);
      if (this.clicked && !this.listens) this.plot.on("plotly_click", ({ points }) => this.clicked(factsOf(points)));
      this.listens = true;
      this.tell("");
    } catch (error) {
      this.tell(say("cannot draw the figure: {error}", { error: error.message }));
    }
  }

  // Why there is no figure; "" where there is one.
  tell(words) {
    this.failure.textContent = words;
    this.failure.hidden = !words;
    this.canvas.hidden = Boolean(words);
  }

  // The figure in the fonts and colours of the page.
  styled() {
    const width = this.el.clientWidth || NARROW; // of one that is saved while it is hidden
    const { fontFamily, color } = getComputedStyle(this.el);
    const { data, layout } = structuredClone(this.spec);
    Object.assign(layout, width < NARROW ? this.spec.narrow : null);
    if (this.spot) layout.shapes = [...(layout.shapes ?? []), lineAt(this.spot[0], color)];
    inScheme(data, this.isDark());
    inScheme(layout, this.isDark());
    layout.width = width;
    layout.font = { ...layout.font, family: fontFamily, color };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: this.background(), font: { size: 12, color } };
    return { data, layout };
  }

  background() {
    return this.computed("var(--dw-pop)");
  }

  isDark() {
    return this.computed("light-dark(rgb(0 0 0), rgb(255 255 255))") !== "rgb(0, 0, 0)";
  }

  computed(colour) {
    const probe = this.el.appendChild(h("i", { style: `background: ${colour}` }));
    const seen = getComputedStyle(probe).backgroundColor;
    probe.remove();
    return seen;
  }

  // A data address of the figure as it is seen, `png` or `svg`, with the legend in it.
  async picture(format) {
    const { data, layout } = this.styled();
    layout.paper_bgcolor = this.background();
    if (this.spec.legend?.length) {
      layout.showlegend = true;
      layout.legend = { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom", traceorder: "normal" };
      layout.margin = { ...layout.margin, t: layout.margin.t + 34 };
      layout.height += 34;
    }
    const { width, height } = layout;
    return (await this.plotly()).toImage({ data, layout, config: CONFIG }, { format, width, height, scale: format === "png" ? 2 : 1 });
  }

  close() {
    this.closed = true;
    this.sizes.disconnect();
    this.themes.disconnect();
    this.scheme.removeEventListener("change", this.turned);
    globalThis[LOADED]?.then((Plotly) => Plotly.purge(this.plot)).catch(() => undefined); // never drawn
  }
}
