/** Render Markdown. No raw HTML, only safe links, and remote images load only after a click. */

import { type ComponentProps, memo, useEffect, useMemo, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Icon } from "../shell/icons";
import { blocksOf } from "./blocks";
import { CodeBlock } from "./code";
import { safeUrl } from "./links";

const PLUGINS = [remarkGfm];
const BLOCKS = 16; // blocks rendered at once

const COMPONENTS: Components = {
  a: ({ href, children }) =>
    href ? <a href={href} target="_blank" rel="noopener noreferrer nofollow">{children}</a> : <span>{children}</span>,
  img: ({ src, alt }) => <RemoteImage src={typeof src === "string" ? src : ""} alt={alt ?? ""} />,
  pre: ({ children }) => <>{children}</>,
  code: Code,
  table: ({ children }) => <div className="table" tabIndex={0} role="region" aria-label="Table"><table>{children}</table></div>,
  input: ({ checked }) => <input type="checkbox" checked={Boolean(checked)} disabled readOnly aria-label={checked ? "done" : "to do"} />,
};

function Code({ className, children, node }: ComponentProps<"code"> & { node?: { position?: { start: { line: number }; end: { line: number } } } }) {
  const text = String(children ?? "");
  const language = /language-(\S+)/.exec(className ?? "")?.[1];
  const isBlock = language !== undefined || text.endsWith("\n") || spansLines(node);
  return isBlock ? <CodeBlock text={text.replace(/\n$/, "")} language={language} /> : <code>{text}</code>;
}

const spansLines = (node?: { position?: { start: { line: number }; end: { line: number } } }) =>
  node?.position !== undefined && node.position.end.line > node.position.start.line;

/** A remote image, loaded after a click in a sandboxed frame: loading it reveals the reader to the other host. */
function RemoteImage({ src, alt }: { src: string; alt: string }) {
  const [isShown, setShown] = useState(false);
  if (!/^https?:/i.test(src)) return <span className="no-image">{alt}</span>;
  const host = new URL(src).host;
  if (isShown)
    return <iframe className="remote-image" title={alt || `Image from ${host}`} src={`/image?url=${encodeURIComponent(src)}`} sandbox="" />;
  return (
    <button type="button" className="blocked-image" onClick={() => setShown(true)}>
      <Icon name="image" size={16} />
      <span>{alt || "Image"} <small>from {host}: click to load</small></span>
    </button>
  );
}

const Block = memo(function Block({ text }: { text: string }) {
  return <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={safeUrl}>{text}</ReactMarkdown>;
});

/** How many of `count` blocks to render: a few more with each frame, so that a long text is not one long task. */
function useProgressiveCount(count: number): number {
  const [most, setMost] = useState(BLOCKS);
  const isShort = most < count + BLOCKS / 2; // streamed blocks are rendered without waiting
  useEffect(() => {
    if (!isShort) return;
    const frame = requestAnimationFrame(() => setMost(Math.min(most, count) + BLOCKS));
    return () => cancelAnimationFrame(frame);
  }, [isShort, most]);
  return most;
}

export const Markdown = memo(function Markdown({ text, isStreaming = false }: { text: string; isStreaming?: boolean }) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  const most = useProgressiveCount(blocks.length);
  return (
    <div className={`markdown ${isStreaming ? "is-streaming" : ""}`}>
      {blocks.slice(0, most).map((block, at) => <Block key={at} text={block} />)}
    </div>
  );
});
