/** A store on a server. The key determines whose conversations it sees. */

import { Conversation } from "./conversation.ts";
import { follow, type LiveEvent, type SubscribeOptions } from "./live.ts";
import { Person } from "./person.ts";
import type { components } from "./schema.ts";
import { type Call, type Cancellable, type Method, type OpenOptions, type Path, type Query, type Reply, Transport } from "./transport.ts";
import type { ConversationInfo, Found, Page, Settings } from "./types.ts";

type Schemas = components["schemas"];

export type ConversationFields = Omit<Schemas["NewConversation"], "key">;
export type ListOptions = Omit<Query<"/api/conversations", "get">, "group" | "timezone"> & Cancellable;
export type SearchOptions = Omit<Query<"/api/search", "get">, "q"> & Cancellable;

/** The caller, as the server sees it. */
export interface Caller {
  tenant: string;
  user: string | null;
  rights: string[];
  visibility: string;
  workspace: string | null;
}

/** Open a store on a server. Throws if the address or the key is wrong. */
export async function open(options: OpenOptions): Promise<Store> {
  const transport = new Transport(options);
  return new Store(transport, await transport.call("get", "/api/settings"));
}

/** Returned by `open`. */
export class Store {
  /** The server's version, limits and models, as they were when the store was opened. */
  readonly settings: Settings;
  private readonly transport: Transport;

  constructor(transport: Transport, settings: Settings) {
    this.transport = transport;
    this.settings = settings;
  }

  get caller(): Caller {
    return this.settings.caller as unknown as Caller;
  }

  /** The conversation with this key, a name that you choose. It is created if it does not exist; without a key, always. */
  async conversation(key?: string | null, fields: ConversationFields & Cancellable = {}): Promise<Conversation> {
    const { signal, ...rest } = fields;
    const call = { body: { ...rest, ...(key != null && { key }) }, repeatable: key != null, ...(signal && { signal }) };
    return this.opened(await this.transport.call("post", "/api/conversations", call));
  }

  /** The conversation with this key. Throws `ConversationNotFound` if there is none. */
  async find(key: string, options: { owner?: string } = {}): Promise<Conversation> {
    return this.opened(await this.transport.call("get", "/api/conversations/find", { query: { key, ...options } }));
  }

  /** The conversation with this id. */
  async get(id: string): Promise<Conversation> {
    return this.opened(await this.transport.call("get", "/api/conversations/{conversation}", { path: { conversation: id } }));
  }

  private opened(info: ConversationInfo): Conversation {
    return new Conversation(this.transport, info);
  }

  /** One page of conversations, most recently used first. `next` is the `cursor` of the next page. */
  async conversations(options: ListOptions = {}): Promise<Page<Conversation>> {
    const { signal, ...query } = options;
    const found = await this.transport.call("get", "/api/conversations", { query, ...(signal && { signal }) });
    return { items: found.items.map((info) => this.opened(info)), next: found.cursor };
  }

  /** Conversations that contain words of `text`, with the turns that match. */
  async search(text: string, options: SearchOptions = {}): Promise<Found["items"]> {
    const { signal, ...query } = options;
    return (await this.transport.call("get", "/api/search", { query: { q: text, ...query }, ...(signal && { signal }) })).items;
  }

  /** Follow several conversations, at most 100, on one connection. */
  subscribe(conversations: (Conversation | string)[], options: SubscribeOptions = {}): AsyncGenerator<LiveEvent, void> {
    const ids = conversations.map((one) => (typeof one === "string" ? one : one.id));
    return follow(this.transport, "/api/events", { conversation: ids }, options);
  }

  /** The memory of a person across conversations. */
  person(id: string): Person {
    return new Person(this.transport, id);
  }

  async stats(): Promise<Schemas["Stats"]> {
    return this.transport.call("get", "/api/stats");
  }

  async usage(options: Query<"/api/usage", "get"> = {}): Promise<Schemas["Usage"]["items"]> {
    return (await this.transport.call("get", "/api/usage", { query: options })).items;
  }

  async budgets(options: Query<"/api/budgets", "get"> = {}): Promise<Schemas["Budgets"]["items"]> {
    return (await this.transport.call("get", "/api/budgets", { query: options })).items;
  }

  async setBudget(budget: Schemas["NewBudget"]): Promise<Schemas["Budgets"]["items"]> {
    return (await this.transport.call("put", "/api/budgets", { body: budget })).items;
  }

  /** Permanently delete all data of a user, and return a signed receipt. */
  async eraseUser(user: string): Promise<Schemas["ErasureReceipt"]> {
    return this.transport.call("post", "/api/erasures", { body: { user }, repeatable: true });
  }

  async checkErasure(receipt: Schemas["CheckErasure"]["receipt"]): Promise<Schemas["ErasureChecked"]> {
    return this.transport.call("post", "/api/erasures/verify", { body: { receipt }, repeatable: true });
  }

  /** Call any operation of the server's API, typed by its OpenAPI document. */
  call<P extends Path, M extends Method>(method: M, path: P, call: Call<P, M> = {}): Promise<Reply<P, M>> {
    return this.transport.call(method, path, call);
  }
}
