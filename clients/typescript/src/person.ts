/** The memory of a person across conversations. */

import type { components } from "./schema.ts";
import type { Query, Transport } from "./transport.ts";
import type { Deletion, Hits, PersonItem, Verified } from "./types.ts";

type Schemas = components["schemas"];
type ItemRef = string | { id: string };

const HERE = "/api/people/{person}";
const ITEM = `${HERE}/facts/{item}` as const;

/** Returned by `store.person`. */
export class Person {
  readonly id: string;
  private readonly transport: Transport;

  constructor(transport: Transport, id: string) {
    this.transport = transport;
    this.id = id;
  }

  private get path(): { person: string } {
    return { person: this.id };
  }

  private of(item: ItemRef): { person: string; item: string } {
    return { ...this.path, item: typeof item === "string" ? item : item.id };
  }

  /** Wishes, facts, preferences and goals as a short text. */
  async profile(): Promise<string> {
    return (await this.transport.call("get", HERE, { path: this.path })).profile;
  }

  async facts(options: Query<`${typeof HERE}/facts`, "get"> = {}): Promise<PersonItem[]> {
    return (await this.transport.call("get", `${HERE}/facts`, { path: this.path, query: options })).items;
  }

  async factHistory(item: ItemRef): Promise<PersonItem[]> {
    return (await this.transport.call("get", `${ITEM}/history`, { path: this.of(item) })).items;
  }

  async remember(text: string, options: Omit<Schemas["NewItem"], "text"> = {}): Promise<PersonItem> {
    return this.transport.call("post", `${HERE}/facts`, { path: this.path, body: { text, ...options } });
  }

  async correct(item: ItemRef, text: string): Promise<PersonItem> {
    return this.transport.call("put", ITEM, { path: this.of(item), body: { text } });
  }

  async approve(item: ItemRef): Promise<PersonItem> {
    return this.transport.call("post", `${ITEM}/approve`, { path: this.of(item), repeatable: true });
  }

  async drop(item: ItemRef): Promise<void> {
    await this.transport.call("delete", ITEM, { path: this.of(item) });
  }

  async recall(query: string, options: { k?: number } = {}): Promise<Hits> {
    return this.transport.call("post", `${HERE}/recall`, { path: this.path, body: { query, ...options }, repeatable: true });
  }

  /** Learn from the person's conversations, in the background. Returns the number of conversations. */
  async learn(): Promise<number> {
    return (await this.transport.call("post", `${HERE}/learn`, { path: this.path, repeatable: true })).conversations;
  }

  async consent(agreed: boolean): Promise<void> {
    await this.transport.call("put", `${HERE}/consent`, { path: this.path, body: { agreed } });
  }

  async export(): Promise<Schemas["PersonExport"]> {
    return this.transport.call("get", `${HERE}/export`, { path: this.path });
  }

  async verify(): Promise<Verified> {
    return this.transport.call("post", `${HERE}/verify`, { path: this.path, repeatable: true });
  }

  /** Delete everything that is remembered about the person. */
  async forget(): Promise<Deletion> {
    const response = await this.transport.send("DELETE", `/api/people/${encodeURIComponent(this.id)}`);
    return { pending: response.status === 202 };
  }
}
