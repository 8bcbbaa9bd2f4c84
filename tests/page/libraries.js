// What the page uses of its libraries, for `npm run libraries`.
export { Component, createRef, h, render } from "preact";
export { useEffect, useRef, useState } from "preact/hooks";
export { computed, effect, signal } from "@preact/signals-core";
import "@preact/signals"; // has each component drawn again when a signal that it reads changes
export { default as htm } from "htm";
