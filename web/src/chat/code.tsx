/** A code block: language, wrap, download and copy, and syntax colours once they are loaded. */

import { type ReactNode, useEffect, useState } from "react";
import { save } from "../history/export";
import { IconButton } from "../shell/icons";
import { prefer, preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { CopyButton } from "./copy";
import { fileNameFor } from "./languages";

const LONGEST = 20_000; // characters; longer code is not highlighted
const PAUSE = 60; // milliseconds without new text before highlighting

export function CodeBlock({ text, language }: { text: string; language?: string }) {
  const coloured = useColours(text, language);
  const isWrapped = useStore(preferences, (one) => one.wrapCode);
  return (
    <figure className={isWrapped ? "code is-wrapped" : "code"} dir="ltr">
      <figcaption>
        <span>{language ?? "text"}</span>
        <span className="code-tools">
          <IconButton icon="wrap" size={16} label="Wrap long lines" aria-pressed={isWrapped} onClick={() => prefer({ wrapCode: !isWrapped })} />
          <IconButton icon="download" size={16} label="Download the code" onClick={() => save(fileNameFor(language), text, "text/plain")} />
          <CopyButton text={text} label="Copy the code" words="Copy" />
        </span>
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
