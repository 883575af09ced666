// Types from the OpenAPI document: src/schema.ts. `python -m tools.openapi_document clients/typescript/openapi.json`
// writes the document; `npm run generate http://127.0.0.1:8484/openapi.json` reads it from a running server.

import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const here = (name) => new URL(`../${name}`, import.meta.url);
const source = process.argv[2];
const document = source?.startsWith("http")
  ? await (await fetch(source)).json()
  : JSON.parse(readFileSync(source ?? here("openapi.json"), "utf8"));

/** Keep Palaver's own operations, without the responses that every one of them has: problem documents. */
function ownOperations({ paths, ...rest }) {
  const own = Object.entries(paths).filter(([path]) => path.startsWith("/api/") && !path.startsWith("/api/chat"));
  return { ...rest, paths: Object.fromEntries(own.map(([path, methods]) => [path, withoutProblems(methods)])) };
}

function withoutProblems(methods) {
  const shorter = (operation) => ({
    ...operation,
    responses: Object.fromEntries(Object.entries(operation.responses).filter(([status]) => status < "400")),
  });
  return Object.fromEntries(Object.entries(methods).map(([method, operation]) => [method, shorter(operation)]));
}

/** Keep the schemas that these operations use, and those of errors. */
function withUsedSchemas(document) {
  const used = new Set(["Problem"]);
  const collect = (value) => {
    for (const [, name] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (used.has(name)) continue;
      used.add(name);
      collect(document.components.schemas[name]);
    }
  };
  collect(document.paths);
  collect(document.components.schemas.Problem);
  const schemas = Object.fromEntries(Object.entries(document.components.schemas).filter(([name]) => used.has(name)));
  return { ...document, components: { ...document.components, schemas } };
}

const types = astToString(await openapiTS(withUsedSchemas(ownOperations(document))));
writeFileSync(here("src/schema.ts"), `// Generated from the OpenAPI document by scripts/generate.mjs.\n\n${types}`);
