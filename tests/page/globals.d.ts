// What Python writes in front of the joined modules; see `devwidget/report/palette.py`.
declare const HUES: { accelerators: string[]; [kind: string]: any };

// The libraries of `devwidget/panel/static/preact`, which that Python joins in front of them.
declare module "preact" {
  export class Component {
    [name: string]: any;
    constructor(props?: any);
    props: any;
    state: any;
  }
  export function createRef(): { current: any };
  export function h(...args: any[]): any;
  export function render(content: any, place: Element): void;
}
declare module "preact/hooks" {
  export function useEffect(run: () => void | (() => void), inputs: any[]): void;
  export function useRef(): { current: any };
  export function useState<Type>(first: Type): [Type, (next: Type) => void];
}
declare module "@preact/signals-core" {
  export function signal<Type>(value: Type): { value: any };
  export function computed<Type>(of: () => Type): { readonly value: Type };
  export function effect(run: () => void): () => void;
}
declare module "htm" {
  const htm: { bind(h: any): (strings: TemplateStringsArray, ...values: any[]) => any };
  export default htm;
}
