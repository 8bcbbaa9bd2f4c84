// A page without Jupyter: the same widgets over plain objects, for exported files and for tests.

function revived(value) {
  if (value && typeof value === "object") {
    if (typeof value.__bytes__ === "string") return new DataView(Uint8Array.from(atob(value.__bytes__), (letter) => letter.charCodeAt(0)).buffer);
    for (const key of Object.keys(value)) value[key] = revived(value[key]);
  }
  return value;
}

export class PageModel {
  constructor(state) {
    this.state = revived(state);
    this.listeners = new Map();
    this.sent = [];
    /** @type {((message: any) => void) | undefined} */
    this.onsend = undefined;
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    this.state[name] = value;
    this.fire(`change:${name}`);
  }
  update(name, value) {
    this.set(name, revived(value));
  }
  save_changes() {}
  send(message) {
    this.sent.push(message);
    this.onsend?.(message);
  }
  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set());
    this.listeners.get(name).add(listener);
  }
  off(name, listener) {
    this.listeners.get(name)?.delete(listener);
  }
  fire(name, ...args) {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(...args);
  }
}

// `widgets`: name -> { state, definition }; a trait that names a widget refers to it.
export function pageHost(widgets) {
  const models = Object.fromEntries(Object.entries(widgets).map(([name, { state }]) => [name, new PageModel(state)]));
  const host = {
    models,
    async getModel(name) {
      return models[name];
    },
    async getWidget(name) {
      return { render: ({ el, signal }) => widgets[name].definition.render({ model: models[name], el, signal, host }) };
    },
  };
  return host;
}
