// Figures: plotly.js comes from Python once per page; colours of text follow the page's theme.
import { createRef } from "preact";
import { Fitted, html } from "./base.js";
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

// Of what is at the place of a click: the facts of a mark that leads on, else of what is nearest.
function factsOf(points) {
  const nearest = points.find(({ customdata }) => customdata?.[2]) ?? points[0];
  return nearest?.customdata ?? nearest?.data?.meta;
}

// One figure. It is drawn when it is in sight and drew another `spec`, at another width or in another theme. `figures` has those that
// can be saved; `clicked` is called with the custom data of a clicked mark, or with the meta of a clicked area, `moved` with what is
// seen of its axis from then on.
export class Figure extends Fitted {
  plot = createRef();
  probe = createRef();
  drawn = { spec: null, width: 0, color: "" }; // what is on the page

  componentDidMount() {
    super.componentDidMount();
    this.props.figures.add(this);
  }

  componentWillUnmount() {
    super.componentWillUnmount();
    this.isClosed = true;
    this.props.figures.delete(this);
    const plot = this.plot.current;
    globalThis[LOADED]?.then((Plotly) => Plotly.purge(plot)).catch(() => undefined); // never drawn
  }

  get isInSight() {
    return Boolean(this.props.spec && this.el.current?.clientWidth);
  }

  // What is to be on the page; a hidden figure has no width, and is asked again when it is shown.
  get wanted() {
    if (this.isClosed || !this.isInSight) return this.drawn;
    return { spec: this.props.spec, width: this.el.current.clientWidth, color: getComputedStyle(this.el.current).color };
  }

  isBehind() {
    const { drawn, wanted } = this;
    return Object.keys(drawn).some((key) => drawn[key] !== wanted[key]);
  }

  async fit() {
    if (!this.isBehind()) return;
    try {
      const Plotly = await this.props.plotly();
      if (!this.isBehind()) return; // hidden meanwhile, or drawn by another call
      this.drawn = this.wanted;
      const { data, layout } = this.styled();
      const plot = this.plot.current;
      await Plotly.react(plot, data, layout, CONFIG);
      if (!this.isListening) this.listen(plot, Plotly);
      this.isListening = true;
      this.tell("");
    } catch (error) {
      this.tell(say("cannot draw the figure: {error}", { error: error.message }));
    }
  }

  // What a click leads away from says nothing any more.
  listen(plot, Plotly) {
    plot.on("plotly_click", ({ points }) => {
      Plotly.Fx.hover(plot, []);
      this.props.clicked?.(factsOf(points));
    });
    plot.on("plotly_relayout", () => this.props.moved?.(...plot.layout.xaxis.range));
    plot.on("plotly_doubleclick", () => this.props.moved?.(0, 1));
  }

  // Why there is no figure; "" where there is one.
  tell(failure) {
    if (failure !== (this.state.failure ?? "")) this.setState({ failure });
  }

  // The figure in the fonts and colours of the page.
  styled() {
    const { spec } = this.props;
    const el = this.el.current;
    const width = el.clientWidth || NARROW; // of one that is saved while it is hidden
    const { fontFamily, color } = getComputedStyle(el);
    const { data, layout } = structuredClone(spec.at?.(width) ?? spec); // of a timeline what is seen depends on it
    Object.assign(layout, width < NARROW ? spec.narrow : null);
    const isDark = this.computed("light-dark(rgb(0 0 0), rgb(255 255 255))") !== "rgb(0, 0, 0)";
    inScheme(data, isDark);
    inScheme(layout, isDark);
    layout.width = width;
    layout.font = { ...layout.font, family: fontFamily, color };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: this.computed("var(--dw-pop)"), font: { size: 12, color } };
    return { data, layout };
  }

  // A colour as it is on this page.
  computed(colour) {
    const probe = this.probe.current;
    probe.style.background = colour;
    return getComputedStyle(probe).backgroundColor;
  }

  // A data address of the figure as it is seen, `png` or `svg`, with the legend in it.
  async picture(format) {
    const { data, layout } = this.styled();
    layout.paper_bgcolor = this.computed("var(--dw-pop)");
    if (this.props.spec.legend?.length) {
      layout.showlegend = true;
      layout.legend = { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom", traceorder: "normal" };
      layout.margin = { ...layout.margin, t: layout.margin.t + 34 };
      layout.height += 34;
    }
    const { width, height } = layout;
    const Plotly = await this.props.plotly();
    return Plotly.toImage({ data, layout, config: CONFIG }, { format, width, height, scale: format === "png" ? 2 : 1 });
  }

  render({ name, spec }, { failure }) {
    const swatch = (colour) => colour && html`<i style=${`background:${colour}`} aria-hidden="true" />`; // of a group no colour
    return html`
      <div ref=${this.el} class=${`dw-figure dw-${name}`} hidden=${!spec} ontransitionend=${() => this.fit()}>
        <div class="dw-legend">${spec?.legend?.map(([words, colour]) => html`<span>${swatch(colour)}${words}</span>`)}</div>
        <p class="dw-empty" hidden=${!failure}>${failure}</p>
        <div class="dw-canvas" role="img" style=${spec && `height:${spec.layout.height}px`} aria-label=${spec?.words} hidden=${Boolean(failure)}>
          <div ref=${this.plot} class="dw-plot" />
        </div>
        <i ref=${this.probe} class="dw-hidden" aria-hidden="true" />
      </div>
    `;
  }
}
