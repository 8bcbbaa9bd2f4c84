// Drawings of the page as pictures: SVG elements, and how one becomes a file that looks the same elsewhere.

const SVG = "http://www.w3.org/2000/svg";
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "font-family", "font-size", "font-weight", "text-anchor", "opacity"];

// A drawing with the looks that the page's style gives it, on a ground.
function dressed(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((each) => each.querySelectorAll("*"));
  from.forEach((each, n) => {
    const seen = getComputedStyle(each);
    to[n].setAttribute("style", LOOKS.map((look) => `${look}:${seen.getPropertyValue(look)}`).join(";"));
  });
  const ground = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: groundOf(drawing) })) ground.setAttribute(name, value);
  copy.prepend(ground);
  copy.setAttribute("xmlns", SVG);
  return copy;
}

function groundOf(drawing) {
  for (let el = drawing; el; el = el.parentElement) {
    const { backgroundColor } = getComputedStyle(el);
    if (!/^rgba\(.*, 0\)$|transparent/.test(backgroundColor)) return backgroundColor;
  }
  return "#fff";
}

// A data address of a drawing, `svg` or `png`; a PNG has twice its size.
export async function picture(drawing, format) {
  const text = new XMLSerializer().serializeToString(dressed(drawing));
  const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  const { width, height } = drawing.viewBox.baseVal;
  return format === "svg" ? address : (await painted(address, 2 * width, 2 * height)).toDataURL("image/png");
}

// A picture on a canvas of this size.
async function painted(address, width, height) {
  const image = new Image(width, height);
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, width, height);
  return canvas;
}

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  saveAs(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function saveAs(address, name) {
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
}
