/** Inside the frame of a diagram: draws what the page sends, and reports the height. Nothing else is reachable from here. */

import mermaid from "mermaid";

const LARGEST = 50_000; // characters
let count = 0;

async function draw({ text, isDark }: { text: string; isDark: boolean }): Promise<void> {
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: isDark ? "dark" : "neutral", maxTextSize: LARGEST, suppressErrorRendering: true });
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  try {
    const { svg } = await mermaid.render(`diagram-${++count}`, text);
    const box = document.getElementById("diagram")!;
    box.innerHTML = svg;
    parent.postMessage({ kind: "drawn", height: Math.ceil(box.getBoundingClientRect().height) + 2 }, "*");
  } catch {
    parent.postMessage({ kind: "failed" }, "*");
  }
}

addEventListener("message", (event: MessageEvent<{ text: string; isDark: boolean }>) => {
  if (event.source === parent && typeof event.data.text === "string") void draw(event.data);
});
parent.postMessage({ kind: "ready" }, "*");
