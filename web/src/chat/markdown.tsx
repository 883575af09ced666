/** Render Markdown. No raw HTML, only safe links, and remote images load only after a click. */

import { cjkFriendlyExtension } from "micromark-extension-cjk-friendly";
import { type ComponentProps, createContext, memo, useContext, useEffect, useMemo, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import remarkMath from "remark-math";
import { Icon } from "../shell/icons";
import { blocksOf } from "./blocks";
import { CodeBlock } from "./code";
import { Diagram } from "./diagram";
import { Formula } from "./formula";
import { withFormulas } from "./formulas";
import { safeUrl } from "./links";

/** Emphasis next to Chinese, Japanese and Korean punctuation, which CommonMark alone does not see. */
function remarkCjk(this: { data: () => object }): void {
  const data = this.data() as { micromarkExtensions?: unknown[] };
  (data.micromarkExtensions ??= []).push(cjkFriendlyExtension());
}

export const PLUGINS = [remarkGfm, remarkMath, remarkCjk] as ComponentProps<typeof ReactMarkdown>["remarkPlugins"];
const BLOCKS = 16; // blocks rendered at once
const Streaming = createContext(false);

// `dir="auto"`: each block is written in the direction of its own words.
const COMPONENTS: Components = {
  a: ({ href, children }) =>
    href ? <a href={href} target="_blank" rel="noopener noreferrer nofollow">{children}</a> : <span>{children}</span>,
  img: ({ src, alt }) => <RemoteImage src={typeof src === "string" ? src : ""} alt={alt ?? ""} />,
  pre: ({ children }) => <>{children}</>,
  code: Code,
  table: ({ children }) => <div className="table" tabIndex={0} role="group" aria-label="Table"><table dir="auto">{children}</table></div>,
  input: ({ checked }) => <i className={checked ? "task is-done" : "task"} role="img" aria-label={checked ? "done" : "to do"}>{checked && <Icon name="check" size={12} />}</i>,
  p: ({ children }) => <p dir="auto">{children}</p>,
  ul: ({ children, className }) => <ul dir="auto" className={className}>{children}</ul>,
  ol: ({ children, className, start }) => <ol dir="auto" className={className} start={start}>{children}</ol>,
  blockquote: ({ children }) => <blockquote dir="auto">{children}</blockquote>,
  h1: ({ children }) => <h1 dir="auto">{children}</h1>,
  h2: ({ children }) => <h2 dir="auto">{children}</h2>,
  h3: ({ children }) => <h3 dir="auto">{children}</h3>,
  h4: ({ children }) => <h4 dir="auto">{children}</h4>,
};

function Code({ className, children, node }: ComponentProps<"code"> & { node?: { position?: { start: { line: number }; end: { line: number } } } }) {
  const isStreaming = useContext(Streaming);
  const text = String(children ?? "");
  if (className?.includes("math-display")) return <Formula text={text} isDisplayed />;
  if (className?.includes("math-inline")) return <Formula text={text} isDisplayed={false} />;
  const language = /language-(\S+)/.exec(className ?? "")?.[1];
  if (language === "mermaid") return <Diagram text={text.trim()} isStreaming={isStreaming} />;
  const isBlock = language !== undefined || text.endsWith("\n") || spansLines(node);
  return isBlock ? <CodeBlock text={text.replace(/\n$/, "")} language={language} /> : <code dir="auto">{text}</code>;
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
  const blocks = useMemo(() => blocksOf(withFormulas(text)), [text]);
  const most = useProgressiveCount(blocks.length);
  return (
    <div className={`markdown ${isStreaming ? "is-streaming" : ""}`}>
      {blocks.slice(0, most).map((block, at) => (
        <Streaming key={at} value={isStreaming && at === blocks.length - 1}><Block text={block} /></Streaming>
      ))}
    </div>
  );
});
