/** The page that draws diagrams: one file with everything in it, because its frame may load nothing. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";
import { STATIC } from "./vite.config.ts";

const SCRIPT = "diagram.js";
const STYLE = "html,body{margin:0;background:transparent}#diagram{overflow:auto}#diagram svg{display:block;margin:auto;max-width:100%;height:auto}";

function inOnePage(): Plugin {
  return {
    name: "in-one-page",
    closeBundle() {
      const script = readFileSync(join(STATIC, SCRIPT), "utf8").replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Diagram</title><style>${STYLE}</style><div id="diagram"></div><script>${script}</script></html>`;
      // Only compressed, and only once: 5 MB as it is, and every browser reads gzip. The server unpacks it for other clients.
      writeFileSync(join(STATIC, "diagram.html.gz"), gzipSync(page, { level: 9 }));
      rmSync(join(STATIC, SCRIPT));
    },
  };
}

export default defineConfig({
  plugins: [inOnePage()],
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    outDir: STATIC,
    emptyOutDir: false,
    copyPublicDir: false,
    target: "es2022",
    license: { fileName: "LICENSES-diagrams.md" },
    lib: { entry: "src/diagram/main.ts", formats: ["iife"], name: "diagram", fileName: () => SCRIPT },
    rollupOptions: { output: { inlineDynamicImports: true } },
  },
} as Parameters<typeof defineConfig>[0]);
