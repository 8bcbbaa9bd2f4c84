// A saved trace, opened by Python in WebAssembly: the package alone, without torch and without anything else installed.
// node pyodide.mjs <folder of the package> <folder of trace.json>
import { loadPyodide } from "pyodide";

const [packageFolder, recordFolder] = process.argv.slice(2);
const python = await loadPyodide();
python.FS.mkdirTree("/packages/devwidget");
python.mountNodeFS("/packages/devwidget", packageFolder);
python.mountNodeFS("/records", recordFolder);
python.runPython(`
import sys
sys.path.insert(0, "/packages")
import devwidget
trace = devwidget.load("/records/trace.json")
print(trace)
trace.to_html("/records/trace.html")
`);
