/** Errors of the server, of the connection and of this package. */

import type { components } from "./schema.ts";

type Described = components["schemas"]["Problem"];
/** A problem document (RFC 9457). Further fields depend on the error. */
export type Problem = Pick<Described, "type" | "title" | "status" | "detail"> & Partial<Described> & { [field: string]: unknown };

/** Names of the library's errors, for replies that do not name one. */
const KINDS: Record<number, string> = {
  400: "InvalidInput",
  401: "TokenRefused",
  403: "PermissionDenied",
  404: "NotFound",
  409: "Conflict",
  410: "Gone",
  412: "Conflict",
  413: "TooLarge",
  422: "InvalidInput",
  429: "RateLimited",
  502: "ModelError",
  503: "EngineUnavailable",
  504: "EngineUnavailable",
};

/** Every error of this package, except for the reason of an aborted signal, which is thrown as it is. */
export class PalaverError extends Error {
  override readonly name = "PalaverError";
  /** The HTTP status; 0 if there was no reply. */
  readonly status: number;
  /** The name of the library's error class, such as `ConversationNotFound`; `ConnectionLost` if there was no reply. */
  readonly kind: string;
  /** The reply of the server: `type`, `title`, `status`, `detail`, and fields such as `field`, `limit` or `expected`. */
  readonly problem: Problem;
  /** Seconds after which the request can be repeated, if the server sent them. */
  readonly retryAfter: number | null;

  constructor(problem: Problem, options: { retryAfter?: number | null; cause?: unknown } = {}) {
    super(problem.detail || problem.title, { cause: options.cause });
    this.status = problem.status;
    this.kind = problem.error ?? KINDS[problem.status] ?? (problem.status < 500 ? "InvalidInput" : "EngineUnavailable");
    this.problem = problem;
    this.retryAfter = options.retryAfter ?? null;
  }
}

/** Create an error that did not come from the server. */
export function failure(kind: string, detail: string, cause?: unknown): PalaverError {
  const problem = { type: "about:blank", title: kind, status: 0, detail, error: kind };
  return new PalaverError(problem, { cause });
}

export const connectionLost = (url: string, cause: unknown) =>
  failure("ConnectionLost", `the server at ${url} cannot be reached: is it running?`, cause);

/** Return the error in a reply. A reply that is not from Palaver, such as a proxy's, has no problem document. */
export async function errorOf(response: Response): Promise<PalaverError> {
  const text = await response.text().catch(() => "");
  return new PalaverError(problemOf(text, response.status), { retryAfter: seconds(response.headers.get("retry-after")) });
}

function problemOf(text: string, status: number): Problem {
  const bare = { type: "about:blank", title: `status ${status}`, status, detail: `the server replied with status ${status}` };
  try {
    const found = JSON.parse(text) as Partial<Problem> | null;
    return { ...bare, ...found, status };
  } catch {
    return bare;
  }
}

function seconds(header: string | null): number | null {
  const found = header === null ? Number.NaN : Number(header);
  return Number.isFinite(found) ? found : null;
}
