/** A block of code: its language, a copy button, and colours as soon as they are there. */

import { type ReactNode, useEffect, useState } from "react";
import { CopyButton } from "./copy";

const LONGEST = 20_000; // characters; beyond that, colours cost more than they help

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

/** Loaded with the first block of code that anybody sees. */
function useColours(text: string, language?: string): ReactNode {
  const [coloured, setColoured] = useState<{ text: string; nodes: ReactNode } | null>(null);
  useEffect(() => {
    if (!language || text.length > LONGEST) return;
    let isCurrent = true;
    const timer = setTimeout(async () => {
      const { highlight } = await import("./highlight");
      if (isCurrent) setColoured({ text, nodes: highlight(text, language) });
    }, 60); // not at every letter that streams in
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, language]);
  return coloured?.text === text ? coloured.nodes : null;
}
