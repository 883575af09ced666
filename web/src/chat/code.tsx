/** A code block: language, copy button, and syntax colours once they are loaded. */

import { type ReactNode, useEffect, useState } from "react";
import { CopyButton } from "./copy";

const LONGEST = 20_000; // characters; longer code is not highlighted
const PAUSE = 60; // milliseconds without new text before highlighting

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

/** Load the highlighter with the first code block. While a block streams in, new text is highlighted with a delay. */
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
    const timer = setTimeout(() => runInOrder(colour), PAUSE + text.length / 10); // longer blocks are highlighted less often
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, language]);
  if (!coloured?.nodes || !text.startsWith(coloured.text)) return null;
  return <>{coloured.nodes}{text.slice(coloured.text.length)}</>;
}

let last: Promise<void> = Promise.resolve();

/** Highlight one block at a time, so that many blocks are not one long task. If it fails, the code stays plain. */
function runInOrder(work: () => Promise<void>): void {
  last = last.then(work).catch(() => undefined);
}

const whenIdle = () =>
  new Promise<void>((resolve) => {
    if ("requestIdleCallback" in window) requestIdleCallback(() => resolve(), { timeout: 500 });
    else setTimeout(resolve, 1);
  });
