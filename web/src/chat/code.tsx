/** A block of code: its language, a copy button, and colours as soon as they are there. */

import { type ReactNode, useEffect, useState } from "react";
import { CopyButton } from "./copy";

const LONGEST = 20_000; // characters; beyond that, colours cost more than they help
const PAUSE = 60; // milliseconds without a new letter

export function CodeBlock({ text, language }: { text: string; language?: string }) {
  const coloured = useColours(text, language);
  return (
    <figure className="code">
      <figcaption>
        <span>{language ?? "text"}</span>
        <CopyButton text={text} label="Copy the code" />
      </figcaption>
      <pre tabIndex={0}><code>{coloured ?? text}</code></pre>
    </figure>
  );
}

/** Loaded with the first block of code that anybody sees. While it grows, what is new waits for its colours. */
function useColours(text: string, language?: string): ReactNode {
  const [coloured, setColoured] = useState<{ text: string; nodes: ReactNode } | null>(null);
  useEffect(() => {
    if (!language || text.length > LONGEST) return;
    let isCurrent = true;
    const colour = async () => {
      if (!isCurrent) return;
      const { highlight } = await import("./highlight");
      await whenIdle();
      if (isCurrent) setColoured({ text, nodes: highlight(text, language) });
    };
    const timer = setTimeout(() => inTurn(colour), PAUSE + text.length / 10); // the more there is, the less often
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, language]);
  if (!coloured?.nodes || !text.startsWith(coloured.text)) return null;
  return <>{coloured.nodes}{text.slice(coloured.text.length)}</>;
}

let last: Promise<void> = Promise.resolve();

/** One block after the other, so that many of them are no long task. Without colours it is still the code. */
function inTurn(work: () => Promise<void>): void {
  last = last.then(work).catch(() => undefined);
}

const whenIdle = () =>
  new Promise<void>((resolve) => {
    if ("requestIdleCallback" in window) requestIdleCallback(() => resolve(), { timeout: 500 });
    else setTimeout(resolve, 1);
  });
