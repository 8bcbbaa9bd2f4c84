// A page with the widget manager of VS Code or of Colab and a kernel of its own: what those notebooks do around one cell.
import { KernelManager, ServerConnection } from '@jupyterlab/services';

const VIEW = 'application/vnd.jupyter.widget-view+json';

async function startKernel(token) {
  const serverSettings = ServerConnection.makeSettings({
    baseUrl: `${location.origin}/`,
    wsUrl: `${location.origin.replace('http', 'ws')}/`,
    token,
    appendToken: true,
  });
  const kernels = new KernelManager({ serverSettings });
  await kernels.ready;
  return kernels.startNew({ name: 'python3' });
}

// As the extension does: the manager is given the kernel, and asks requirejs, which Colab has not, for what is not its own.
async function openVsCode(kernel, element) {
  const loader = Object.assign(document.createElement('script'), { src: '/host/require.js' });
  await new Promise((resolve) => (document.head.append(loader), (loader.onload = resolve)));
  const { activate } = await import('./vscode.js');
  activate();
  window.vscIPyWidgets8.load();
  window.requirejs.config({ paths: { anywidget: '/host/anywidget' } });
  const scripts = {
    widgetsRegisteredInRequireJs: new Set(),
    loadWidgetScript: async () => {},
    successHandler: () => {},
    errorHandler: (name, module, version, error) => console.error(`${module} ${version} ${name}`, error),
  };
  const manager = new window.vscIPyWidgets.WidgetManager(kernel, element, scripts, () => {});
  return async (id) => {
    const view = await manager.create_view(await manager.get_model(id));
    await manager.display_view(view.model, view, { node: element });
  };
}

// One channel as Colab hands it to its manager: an endless sequence of messages, for each who asks from the first on.
function channelOf(comm) {
  const came = [];
  const waiting = new Set();
  comm.onMsg = (message) => {
    came.push({ data: message.content.data, buffers: (message.buffers ?? []).map((part) => part.buffer ?? part) });
    for (const wake of waiting) wake();
    waiting.clear();
  };
  async function* read() {
    for (let next = 0; ; next += 1) {
      while (next === came.length) await new Promise((wake) => waiting.add(wake));
      yield came[next];
    }
  }
  return {
    send: async (data, options) => void comm.send(data, {}, options?.buffers),
    close: () => comm.close(),
    messages: { [Symbol.asyncIterator]: read },
  };
}

async function openColab(kernel, element) {
  const { createWidgetManager } = await import('/host/colab.js');
  const opened = new Map();
  kernel.registerCommTarget('jupyter.widget', (comm, message) => {
    const { state } = message.content.data;
    opened.set(comm.commId, {
      modelName: state._model_name,
      modelModule: state._model_module,
      modelModuleVersion: state._model_module_version,
      state,
      comm: channelOf(comm),
    });
  });
  const manager = createWidgetManager({
    getModelState: async (id) => opened.get(id),
    openCommChannel: async (target, data, buffers) => {
      const comm = kernel.createComm(target);
      comm.open(data, {}, buffers);
      return channelOf(comm);
    },
    renderOutput: async () => {},
  });
  return (id) => manager.render(id, element);
}

async function runCells() {
  const asked = new URLSearchParams(location.search);
  const kernel = await startKernel(asked.get('token'));
  const render = await (asked.get('host') === 'colab' ? openColab : openVsCode)(kernel, document.querySelector('#output'));
  for (const code of await (await fetch('/host/cells.json')).json()) {
    const future = kernel.requestExecute({ code });
    const shown = [];
    future.onIOPub = (message) => {
      if (message.header.msg_type === 'error') console.error(message.content.traceback.join('\n'));
      if (message.content.data?.[VIEW]) shown.push(message.content);
    };
    await future.done;
    for (const { data, metadata } of shown) {
      window.metadata = metadata;
      await render(data[VIEW].model_id);
    }
  }
}

runCells().catch((error) => console.error(error));
