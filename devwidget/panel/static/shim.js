// A page without Jupyter: the same widgets over plain objects, for exported files and for tests.

export class PageModel {
  listeners = {};
  sent = [];
  /** @type {((message: any) => void) | undefined} */
  onsend = undefined;

  constructor(state) {
    this.state = state;
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    this.state[name] = value;
    this.fire(`change:${name}`);
  }
  send(message) {
    this.sent.push(message);
    this.onsend?.(message);
  }
  on(name, listener) {
    (this.listeners[name] ??= new Set()).add(listener);
  }
  off(name, listener) {
    this.listeners[name]?.delete(listener);
  }
  fire(name, ...args) {
    for (const listener of [...(this.listeners[name] ?? [])]) listener(...args);
  }
}

// `widgets`: name -> { state, definition }; a trait that names a widget refers to it.
export function pageHost(widgets) {
  const models = Object.fromEntries(Object.entries(widgets).map(([name, { state }]) => [name, new PageModel(state)]));
  const draw = (name, { el, signal }) => widgets[name].definition.render({ model: models[name], el, signal, host });
  const host = { models, getModel: async (name) => models[name], getWidget: async (name) => ({ render: (place) => draw(name, place) }) };
  return host;
}
