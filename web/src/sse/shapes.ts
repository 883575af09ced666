/**
 * Readers for three streaming formats: Palaver's frames, OpenAI's chunks, Anthropic's events.
 * Each function turns one message into events. Unknown messages are skipped.
 */

import type { Message } from "./parser";

export type StreamEvent =
  | { kind: "text"; text: string }
  | { kind: "thinking"; text: string }
  | { kind: "call"; index: number; id?: string; name?: string; arguments: string }
  | { kind: "usage"; prompt?: number; completion?: number }
  | { kind: "end"; reason: string | null }
  | { kind: "error"; message: string };

type Anything = Record<string, any>;

function parseObject(data: string): Anything | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && value !== null ? (value as Anything) : null;
  } catch {
    return null;
  }
}

const unreadable: StreamEvent[] = [{ kind: "error", message: "the stream contains invalid JSON" }];

/** `generate` with `"stream": true`. */
export function palaver(message: Message): StreamEvent[] {
  const data = parseObject(message.data);
  if (!data) return unreadable;
  switch (message.event) {
    case "delta":
      return [{ kind: "text", text: data.text }];
    case "reasoning":
      return [{ kind: "thinking", text: data.text }];
    case "tool_calls":
      return data.calls.map((call: Anything, index: number) => ({
        kind: "call", index, id: call.id, name: call.name, arguments: JSON.stringify(call.arguments),
      }));
    case "done":
      return [...usage(data.usage?.prompt, data.usage?.completion), { kind: "end", reason: data.turn.finish_reason }];
    case "error":
      return [{ kind: "error", message: data.detail || data.title }];
    default:
      return [];
  }
}

/** Chat Completions chunks. */
export function openai(message: Message): StreamEvent[] {
  if (message.data.trim() === "[DONE]") return [];
  const data = parseObject(message.data);
  if (!data) return unreadable;
  if (data.error) return [{ kind: "error", message: String(data.error.message ?? "the model failed") }];
  const events: StreamEvent[] = [];
  for (const choice of data.choices ?? []) {
    const delta = choice.delta ?? {};
    const thoughts = delta.reasoning_content ?? delta.reasoning;
    if (thoughts) events.push({ kind: "thinking", text: thoughts });
    if (delta.content) events.push({ kind: "text", text: delta.content });
    for (const call of delta.tool_calls ?? []) events.push(openaiCall(call));
    if (choice.finish_reason) events.push({ kind: "end", reason: choice.finish_reason });
  }
  return [...events, ...usage(data.usage?.prompt_tokens, data.usage?.completion_tokens)];
}

function openaiCall(call: Anything): StreamEvent {
  const { name, arguments: text } = call.function ?? {};
  return { kind: "call", index: call.index ?? 0, ...(call.id && { id: call.id }), ...(name && { name }), arguments: text ?? "" };
}

/** Messages events. */
export function anthropic(message: Message): StreamEvent[] {
  const data = parseObject(message.data);
  if (!data) return unreadable;
  switch (data.type) {
    case "message_start":
      return usage(data.message?.usage?.input_tokens, undefined);
    case "content_block_start":
      return data.content_block?.type === "tool_use"
        ? [{ kind: "call", index: data.index, id: data.content_block.id, name: data.content_block.name, arguments: "" }]
        : [];
    case "content_block_delta":
      return anthropicDelta(data.index, data.delta ?? {});
    case "message_delta":
      return [
        ...usage(undefined, data.usage?.output_tokens),
        ...(data.delta?.stop_reason ? [{ kind: "end", reason: data.delta.stop_reason } as const] : []),
      ];
    case "error":
      return [{ kind: "error", message: String(data.error?.message ?? "the model failed") }];
    default:
      return [];
  }
}

function anthropicDelta(index: number, delta: Anything): StreamEvent[] {
  if (delta.type === "text_delta") return [{ kind: "text", text: delta.text }];
  if (delta.type === "thinking_delta") return [{ kind: "thinking", text: delta.thinking }];
  if (delta.type === "input_json_delta") return [{ kind: "call", index, arguments: delta.partial_json }];
  return [];
}

function usage(prompt: number | undefined, completion: number | undefined): StreamEvent[] {
  if (prompt == null && completion == null) return [];
  return [{ kind: "usage", ...(prompt != null && { prompt }), ...(completion != null && { completion }) }];
}
