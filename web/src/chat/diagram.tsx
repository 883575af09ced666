/** A Mermaid diagram, drawn in a frame that may load nothing and reach nothing. It is loaded when a diagram appears. */

import { useEffect, useRef, useState } from "react";
import { CodeBlock } from "./code";

const FRAME = `/diagram.html?v=${__BUILD__}`;
const HIGHEST = 900; // pixels; a higher diagram is scrolled

type Answer = { kind: "ready" } | { kind: "drawn"; height: number } | { kind: "failed" };

export function Diagram({ text, isStreaming }: { text: string; isStreaming: boolean }) {
  const [isSource, setSource] = useState(false);
  const [state, setState] = useState<{ text: string; height: number; hasFailed: boolean } | null>(null);
  const frame = useRef<HTMLIFrameElement>(null);
  const isReady = useRef(false);
  useEffect(() => {
    if (isStreaming) return;
    const ask = () => frame.current?.contentWindow?.postMessage({ text, isDark: isDark() }, "*"); // its origin is opaque
    const onMessage = (event: MessageEvent<Answer>) => {
      if (event.source !== frame.current?.contentWindow) return;
      if (event.data.kind === "ready") {
        isReady.current = true;
        ask();
      }
      if (event.data.kind === "drawn") setState({ text, height: Math.min(HIGHEST, Math.max(40, Number(event.data.height) || 0)), hasFailed: false });
      if (event.data.kind === "failed") setState({ text, height: 0, hasFailed: true });
    };
    addEventListener("message", onMessage);
    if (isReady.current) ask();
    return () => removeEventListener("message", onMessage);
  }, [text, isStreaming]);
  const isDrawn = state !== null && state.text === text && !state.hasFailed;
  if (isStreaming || (state?.text === text && state.hasFailed)) return <CodeBlock text={text} language="mermaid" />;
  return (
    <figure className="diagram" dir="ltr">
      <figcaption>
        <span>Diagram</span>
        <button type="button" className="text-button" aria-pressed={isSource} onClick={() => setSource(!isSource)}>{isSource ? "Show diagram" : "Show source"}</button>
      </figcaption>
      {isSource && <CodeBlock text={text} language="mermaid" />}
      <iframe
        ref={frame} src={FRAME} sandbox="allow-scripts" title={`Diagram: ${text.slice(0, 120)}`} tabIndex={-1} hidden={isSource}
        className={isDrawn ? "" : "is-waiting"} style={{ height: state?.height ?? 120 }}
      />
    </figure>
  );
}

const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark"
  || (document.documentElement.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
