/** Server-sent events of a response, parsed as the HTML standard says. */

export interface Message {
  event: string;
  data: string;
  /** The position after this event, to resume at. */
  id: string | null;
}

/** Parses text that may be split anywhere. */
export class SseParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id: string | null = null;

  /** Add a piece of text and return the messages that it completes. */
  push(piece: string): Message[] {
    this.rest += piece;
    const found: Message[] = [];
    for (let line = this.takeLine(); line !== null; line = this.takeLine()) {
      const message = this.readLine(line);
      if (message) found.push(message);
    }
    return found;
  }

  /** The next whole line. A CR at the end of the text waits, because an LF may follow. */
  private takeLine(): string | null {
    const end = this.rest.search(/[\r\n]/);
    if (end < 0 || (this.rest[end] === "\r" && end === this.rest.length - 1)) return null;
    const line = this.rest.slice(0, end);
    this.rest = this.rest.slice(this.rest.startsWith("\r\n", end) ? end + 2 : end + 1);
    return line;
  }

  private readLine(line: string): Message | null {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
    return null;
  }

  private dispatch(): Message | null {
    const message = this.data.length ? { event: this.event || "message", data: this.data.join("\n"), id: this.id } : null;
    this.event = "";
    this.data = [];
    return message;
  }
}

/** Yield the messages of a response as they arrive. `alive` is called for every piece, comments included. */
export async function* messagesOf(response: Response, alive: () => void = () => undefined): AsyncGenerator<Message, void> {
  if (!response.body) return;
  const parser = new SseParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      yield* parser.push(value);
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
