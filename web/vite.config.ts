import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const STATIC = "../src/palaver/server/web/static";
const TEXT = /\.(js|css|html|svg)$/;

/** Compressed once, here, instead of for every visitor. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const name of readdirSync(STATIC, { recursive: true, encoding: "utf8" })) {
        if (!TEXT.test(name)) continue;
        const bytes = readFileSync(join(STATIC, name));
        writeFileSync(join(STATIC, `${name}.gz`), gzipSync(bytes, { level: 9 }));
        writeFileSync(join(STATIC, `${name}.br`), brotliCompressSync(bytes));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  build: {
    outDir: STATIC,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    license: { fileName: "LICENSES.md" },
  },
  server: { port: 8485, proxy: { "/api": "http://127.0.0.1:8484" } },
  test: { include: ["tests/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
