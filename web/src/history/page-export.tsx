/** A conversation as one HTML page: no scripts, nothing loaded from anywhere. A separate chunk. */

import type { ComponentProps } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import ReactMarkdown, { type Components } from "react-markdown";
import type { Conversation, Turn } from "../api/types";
import { nameOf } from "../chat/actors";
import { withFormulas } from "../chat/formulas";
import { safeUrl } from "../chat/links";
import { PLUGINS } from "../chat/markdown";
import { mathml } from "../chat/math";
import { momentOf } from "../state/dates";
import { textOf } from "../state/text";
import { titleOf } from "../state/titles";

const STYLE = `:root{color-scheme:light dark}body{max-width:46rem;margin:2rem auto;padding:0 1rem;font:16px/1.6 system-ui,sans-serif}
h1{font-size:1.4rem}article{margin-top:1.5rem}header{color:gray;font-size:.8rem}.user{padding:.6rem 1rem;border-radius:.75rem;background:color-mix(in srgb,gray 15%,transparent)}
pre{overflow:auto;padding:.75rem;border-radius:.5rem;background:color-mix(in srgb,gray 12%,transparent)}code{font-size:.9em}
table{border-collapse:collapse}td,th{border:1px solid color-mix(in srgb,gray 40%,transparent);padding:.25rem .6rem}
.contains-task-list{list-style:none;padding-inline-start:0}math[display=block]{margin:1rem 0;overflow:auto}`;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'";

export function pageOf(info: Conversation, turns: Turn[]): string {
  const shown = turns.filter((turn) => (turn.role === "user" || turn.role === "assistant") && (textOf(turn.content) || turn.attachments.length));
  const page = (
    <html lang="en">
      <head>
        <meta charSet="utf-8" />
        <meta httpEquiv="Content-Security-Policy" content={POLICY} />
        <meta name="viewport" content="width=device-width" />
        <title>{titleOf(info)}</title>
        <style>{STYLE}</style>
      </head>
      <body>
        <h1 dir="auto">{titleOf(info)}</h1>
        {shown.map((turn) => <Message key={turn.id} turn={turn} />)}
      </body>
    </html>
  );
  return `<!doctype html>${renderToStaticMarkup(page)}`;
}

function Message({ turn }: { turn: Turn }) {
  return (
    <article>
      <header>{nameOf(turn)}, {momentOf(turn.created)}</header>
      <div className={turn.role} dir="auto">
        {turn.role === "user" ? <p style={{ whiteSpace: "pre-wrap", margin: 0 }}>{textOf(turn.content)}</p> : <Text text={textOf(turn.content)} />}
        {turn.attachments.map((file) => <p key={file.id}><small>File: {file.filename}</small></p>)}
      </div>
    </article>
  );
}

/** Images are named, not loaded. Each block is written in the direction of its own words. */
const COMPONENTS: Components = {
  img: ({ alt }) => <em>[image: {alt}]</em>,
  input: ({ checked }) => <>{checked ? "☑" : "☐"}</>,
  code: Code,
  p: ({ children }) => <p dir="auto">{children}</p>,
  ul: ({ children, className }) => <ul dir="auto" className={className}>{children}</ul>,
  ol: ({ children, start }) => <ol dir="auto" start={start}>{children}</ol>,
  blockquote: ({ children }) => <blockquote dir="auto">{children}</blockquote>,
  table: ({ children }) => <table dir="auto">{children}</table>,
  pre: ({ children }) => <pre dir="ltr">{children}</pre>,
};

/** Code, or a formula as MathML, which browsers draw without our fonts or styles. */
function Code({ className, children }: ComponentProps<"code">) {
  const text = String(children ?? "");
  const isDisplayed = className?.includes("math-display") ?? false;
  const html = isDisplayed || className?.includes("math-inline") ? mathml(text, isDisplayed) : null;
  return html === null ? <code>{children}</code> : <span dir="ltr" dangerouslySetInnerHTML={{ __html: html }} />;
}

function Text({ text }: { text: string }) {
  return <ReactMarkdown remarkPlugins={PLUGINS} urlTransform={safeUrl} components={COMPONENTS}>{withFormulas(text)}</ReactMarkdown>;
}
