/** The server of the tests: its address and a key are in the environment. */

import type { TestContext } from "node:test";

import { open, type Store } from "../src/index.ts";
import { Proxy } from "./proxy.ts";

export const URL_OF_SERVER = process.env["PALAVER_URL"] ?? "http://127.0.0.1:8484";
export const KEY = process.env["PALAVER_KEY"] ?? "";

export const connected = (url = URL_OF_SERVER): Promise<Store> => open({ url, key: KEY });

/** A store behind a proxy that can cut connections. */
export async function behindProxy(test: TestContext): Promise<[Store, Proxy]> {
  const proxy = await Proxy.before(URL_OF_SERVER);
  test.after(() => proxy.close());
  return [await connected(proxy.url), proxy];
}
