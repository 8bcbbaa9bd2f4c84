"""The panel as a user presses it.

What users complained about, and where it is pressed, at 700, 910, 1280 and 1600 pixels where widths matter:

- The answer is buried under a header: `test_verdict` (its button in the first 130 pixels, a fault that ended the step is
  one card), `test_apply` (two clicks, one back; Notebook 7, too).
- Curves with a scale each, a nearly empty GPU after an out-of-memory: `tests/report/test_figures`.
- No zoom, an empty half, hop and fault apart, arrows without words, names that marks strike: `test_timeline`.
- A map whose ribbons strike names: `test_devices` and `tests/report/test_devices_figure`.
- Colours that say two things: `tests/report/test_palette`, `test_esm_panel` (no part of memory has the colour of a device),
  `test_devices` (the colours of JupyterLab's theme).
- In and out gone below 910 pixels, code cut with room beside it, words cut in the header: `test_widths`;
  equal layers in fifty rows: `test_esm_tree`.
- G covers forward: `test_ranks`. Grey devices without a kernel: `test_esm_panel`.
- An export that opens on Modules, and its weight: `test_esm_export`, `tests/report/test_page_size`.
- A saved notebook that does not follow: `test_saved_notebook`. A first notebook that is run past: `test_first_look`.
- One counted as many: `test_two_languages`. All states: `test_states`.
"""
