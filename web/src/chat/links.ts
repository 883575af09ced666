/** Allow http, https and mailto links only: no scripts, no paths of this server. */
export function safeUrl(url: string): string {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(url).protocol) ? url : "";
  } catch {
    return "";
  }
}
