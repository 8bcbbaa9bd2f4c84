// A page without Jupyter: the widgets over plain objects, which a test changes as Python would.

class PageModel {
  listeners = {};
  sent = [];
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
function pageHost(widgets) {
  const models = Object.fromEntries(Object.entries(widgets).map(([name, { state }]) => [name, new PageModel(state)]));
  const draw = (name, { el, signal }) => widgets[name].definition.render({ model: models[name], el, signal, host });
  const host = { models, getModel: async (name) => models[name], getWidget: async (name) => ({ render: (place) => draw(name, place) }) };
  return host;
}
