// The page of a layout in a notebook, which Python draws.
import { html, widget } from "../../../panel/static/base.js";
import { Markup } from "../../../panel/static/parts.js";

export default widget((page) => () => html`<${Markup} text=${page.state.page} />`);
