// What Python writes in front of the joined modules; see `devwidget/report/palette.py`.
declare const HUES: { accelerators: string[]; [kind: string]: any };
