import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

export const STATIC = "../src/palaver/server/web/static";
const TEXT = /\.(js|css|html|svg)$/;
const PACKED_ONLY = /\.(js|css)$/; // installed compressed only: the server unpacks them at start, for the few who need them plain

/** Compressed once, here, instead of for every visitor. */
function compress(name: string): void {
  const path = join(STATIC, name);
  const bytes = readFileSync(path);
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  if (PACKED_ONLY.test(name)) rmSync(path);
}

function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const name of readdirSync(STATIC, { recursive: true, encoding: "utf8" })) if (TEXT.test(name)) compress(name);
    },
  };
}

/** Every browser that runs this app reads WOFF2: the other two formats of each font of KaTeX are left out. */
function woff2Only(): Plugin {
  return {
    name: "woff2-only",
    enforce: "pre",
    transform: (code, id) => (id.endsWith("katex.css") ? code.replace(/,\s*url\([^)]*\.(woff|ttf)\)\s*format\("[a-z]+"\)/g, "") : null),
  };
}

/** Changes with the page that draws diagrams, which browsers keep for a day. */
function diagramVersion(): string {
  const files = ["src/diagram/main.ts", "vite.diagram.config.ts", "node_modules/mermaid/package.json"];
  return createHash("sha256").update(files.map((file) => readFileSync(file, "utf8")).join()).digest("hex").slice(0, 12);
}

export default defineConfig({
  plugins: [woff2Only(), react(), compressed()],
  define: { __BUILD__: JSON.stringify(diagramVersion()) },
  build: {
    outDir: STATIC,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    license: { fileName: "LICENSES.md" },
  },
  server: { port: 8485, proxy: { "/api": "http://127.0.0.1:8484", "/diagram.html": "http://127.0.0.1:8484" } },
  test: { include: ["tests/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
