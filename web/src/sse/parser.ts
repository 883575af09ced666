/** Parse server-sent events from text chunks that may be split anywhere. Follows the HTML standard. */

export interface Message {
  event: string;
  data: string;
  id: string | null;
}

export class SseParser {
  retry: number | null = null;
  private rest = "";
  private started = false;
  private event = "";
  private data: string[] = [];
  private id: string | null = null;

  /** Add a chunk and return the messages it completes. */
  push(piece: string): Message[] {
    this.rest += piece;
    if (!this.started && this.rest) {
      this.started = true;
      if (this.rest.startsWith("\uFEFF")) this.rest = this.rest.slice(1);
    }
    const found: Message[] = [];
    for (let line = this.line(); line !== null; line = this.line()) {
      const message = this.take(line);
      if (message) found.push(message);
    }
    return found;
  }

  /** The next whole line. A CR at the end of the buffer waits, because an LF may follow. */
  private line(): string | null {
    const end = this.rest.search(/[\r\n]/);
    if (end < 0 || (this.rest[end] === "\r" && end === this.rest.length - 1)) return null;
    const line = this.rest.slice(0, end);
    this.rest = this.rest.slice(this.rest.startsWith("\r\n", end) ? end + 2 : end + 1);
    return line;
  }

  private take(line: string): Message | null {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return null;
  }

  private dispatch(): Message | null {
    const message = this.data.length
      ? { event: this.event || "message", data: this.data.join("\n"), id: this.id }
      : null;
    this.event = "";
    this.data = [];
    return message;
  }
}

/** Yield the messages of a response as they arrive. */
export async function* messagesOf(response: Response): AsyncGenerator<Message, void> {
  if (!response.body) return;
  const parser = new SseParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
