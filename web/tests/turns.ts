import type { Turn } from "../src/api/types";

/** A turn with these fields, and nothing special otherwise. */
export function turn(fields: Partial<Turn>): Turn {
  return {
    id: "t0", conversation: "c", seq: 0, position: 0, role: "user", actor: "user", content: "", created: "2026-11-15T09:00:00Z",
    status: "complete", tool_calls: [], tool_results: [], attachments: [], sources: [], tokens: null, token_count: 0,
    model: null, adapter: null, finish_reason: null, metadata: {}, parent: null, active: true, superseded_by: null,
    content_hash: null, ...fields,
  };
}
