/** http, https and mailto, nothing else: neither scripts nor paths of this server. */
export function safeUrl(url: string): string {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(url).protocol) ? url : "";
  } catch {
    return "";
  }
}
