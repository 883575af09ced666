// Types by openapi-typescript, a program that uses them with openapi-fetch, compiled with --strict and run.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = mkdtempSync(join(process.cwd(), "generated-"));
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
const PACKAGES = ["openapi-typescript", "openapi-fetch", "typescript"];

const PROGRAM = `
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({
  baseUrl: process.env.PALAVER_URL!,
  headers: { Authorization: \`Bearer \${process.env.PALAVER_KEY}\` },
});
const made = await client.POST("/api/conversations", { body: { title: "Peanuts" } });
if (made.error) throw new Error(made.error.title);
const path = { conversation: made.data.id };
await client.POST("/api/conversations/{conversation}/turns", { params: { path }, body: { role: "user", content: "No peanuts." } });
const page = await client.GET("/api/conversations/{conversation}/turns", { params: { path, query: { limit: 5 } } });
const texts = page.data!.items.map((turn) => turn.content);
const context = await client.POST("/api/conversations/{conversation}/context", { params: { path }, body: { token_budget: 1000 } });
const tokens: number = context.data!.tokens;
const missing = await client.GET("/api/conversations/{conversation}", { params: { path: { conversation: "01KA2V4YFM3Q2D7N9V1C6T0000" } } });
const title: string | undefined = missing.error?.title;
console.log(JSON.stringify({ texts, tokens, title, status: missing.response.status }));
`;

const MISTAKES = `
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";
const client = createClient<paths>({ baseUrl: "" });
// @ts-expect-error an unknown role
client.POST("/api/conversations/{conversation}/turns", { params: { path: { conversation: "x" } }, body: { role: "usr", content: "" } });
// @ts-expect-error an unknown policy
client.POST("/api/conversations/{conversation}/context", { params: { path: { conversation: "x" } }, body: { policy: "balancd" } });
// @ts-expect-error an unknown path
client.GET("/api/conversation");
`;

function run(...command) {
  const done = spawnSync(process.execPath, command, { cwd: folder, encoding: "utf8", timeout: 240_000 });
  assert.equal(done.status, 0, done.stdout + done.stderr);
  return done.stdout;
}

const bin = (name, path) => join(process.cwd(), "node_modules", name, path);
const compilerOptions = { strict: true, target: "es2022", module: "nodenext", lib: ["es2022", "dom"], types: [], outDir: "out" };

function compile(file) {
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["globals.d.ts", file] }));
  run(bin("typescript", "bin/tsc"), "-p", ".");
}

const scenarios = {
  "types are generated"() {
    run(bin("openapi-typescript", "bin/cli.js"), process.env.PALAVER_DOCUMENT, "-o", "schema.ts");
    writeFileSync(join(folder, "package.json"), '{"type": "module"}');
    writeFileSync(join(folder, "globals.d.ts"), "declare const process: { env: Record<string, string | undefined> };");
  },
  "a program with the types compiles with --strict"() {
    writeFileSync(join(folder, "program.ts"), PROGRAM);
    compile("program.ts");
  },
  "the program runs"() {
    const told = JSON.parse(run("out/program.js"));
    assert.deepEqual(told.texts, ["No peanuts."]);
    assert.equal(told.status, 404);
    assert.ok(told.title);
  },
  "misspelt roles, policies and paths do not compile"() {
    writeFileSync(join(folder, "mistakes.ts"), MISTAKES);
    compile("mistakes.ts");
  },
};

console.log(JSON.stringify({ packages: Object.fromEntries(PACKAGES.map((name) => [name, version(name)])) }));
const wanted = process.argv.slice(2);
for (const [name, work] of Object.entries(scenarios)) {
  if (wanted.length && !wanted.includes(name)) continue;
  let problem = null;
  try {
    work();
  } catch (caught) {
    problem = `${caught.name}: ${caught.message}`.slice(0, 1500);
  }
  console.log(JSON.stringify({ scenario: name, problem }));
}
rmSync(folder, { recursive: true });
