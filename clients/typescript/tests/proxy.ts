/** A proxy in front of the server whose connections can be cut. */

import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export class Proxy {
  url = "";
  connections = 0;
  /** Called with what the server sends; true cuts the connection before the client gets it. */
  cutReply: (text: string) => boolean = () => false;
  private readonly open = new Set<Socket>();
  private readonly server = createServer((client) => this.relay(client));

  private readonly target: URL;

  constructor(target: URL) {
    this.target = target;
  }

  static async before(url: string): Promise<Proxy> {
    const proxy = new Proxy(new URL(url));
    await new Promise<void>((ready) => proxy.server.listen(0, "127.0.0.1", ready));
    proxy.url = `http://127.0.0.1:${(proxy.server.address() as AddressInfo).port}`;
    return proxy;
  }

  private relay(client: Socket): void {
    this.connections++;
    const upstream = connect(Number(this.target.port), this.target.hostname);
    const end = () => (client.destroy(), upstream.destroy(), this.open.delete(client));
    this.open.add(client);
    client.on("data", (data) => upstream.write(data));
    upstream.on("data", (data) => (this.cutReply(data.toString()) ? end() : client.write(data)));
    for (const one of [client, upstream]) one.on("error", end).on("close", end);
  }

  /** Cut every connection that is open. */
  cut(): void {
    for (const one of this.open) one.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}
