// Starts @supabase/lite on the tests' own databases: PostgREST-compatible, not PostgREST. Run by tests/supabase_server.py, which
// copies it next to the packages that it imports; what it needs to know comes by environment. The first folder of a request's
// path names the database, and after a ~ the kind of its schema, so that one process serves all tests.
//
// Five things are set right here, where 0.10 differs from PostgREST: an argument of type jsonb arrives as the value that was
// sent, not as a string of it; bytes come back in hex; a SQLSTATE of our own reaches the caller; nothing is granted to anybody; a
// list of rows is taken with the columns that it has, since their names, which clients send along, are not found.

import { serve } from "@hono/node-server";
import { App } from "@supabase/lite";
import { createPostgresConnection } from "@supabase/lite/postgres";

console.error = () => {}; // it would print every refusal, with the row
const asSent = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const PASSED_ON = /^(PT|PGRST|21|22|23505|23503|23502|42|53|55|25006)/;

const schemas = new Map(); // one for each kind of database: all of a kind are copies of one template
function connect(place) {
  const [database, kind] = place.split("~");
  const url = new URL(process.env.LITE_POSTGRES);
  url.pathname = database;
  const connection = createPostgresConnection({
    url: url.href,
    postgresOptions: {
      max: 8,
      idle_timeout: 5,
      onnotice: () => {},
      types: {
        json: { to: 114, from: [114], serialize: asSent, parse: JSON.parse },
        jsonb: { to: 3802, from: [3802], serialize: asSent, parse: JSON.parse },
        bytea: { to: 17, from: [17], serialize: asSent, parse: (text) => text },
      },
    },
  });
  const normalize = connection.normalizeDbError.bind(connection);
  connection.normalizeDbError = (problem) => passedOn(normalize(problem));
  connection.rlsState = "active"; // otherwise it grants every table to anon first
  const introspect = connection.introspect.bind(connection);
  connection.introspect = (options) => {
    if (!schemas.has(kind)) schemas.set(kind, introspect(options));
    return schemas.get(kind);
  };
  return connection;
}

function passedOn(problem) {
  if (typeof problem?.code !== "string" || problem.code.length !== 5 || PASSED_ON.test(problem.code)) return problem;
  const said = { code: problem.code, message: problem.message, details: problem.detail, hint: problem.hint };
  const how = { code: "PGRST", detail: JSON.stringify({ status: 400, headers: {} }) };
  return Object.assign(new Error(JSON.stringify(said)), how);
}

// Files in memory. Their rows are in the database, under its policies.
const files = new Map();
const described = (data) => ({
  cacheControl: "no-cache", contentLength: data.length, size: data.length, mimetype: "application/octet-stream",
  eTag: `"${data.length}"`, lastModified: new Date(), httpStatusCode: 200,
});
const inMemory = (database) => ({
  driver: null,
  async uploadObject(bucket, key, version, body) {
    const data = Buffer.from(await new Response(body).arrayBuffer());
    files.set([database, bucket, key].join("/"), data);
    return described(data);
  },
  async getObject(bucket, key) {
    const data = files.get([database, bucket, key].join("/"));
    return { metadata: described(data), httpStatusCode: 200, body: data };
  },
  async headObject(bucket, key) {
    return described(files.get([database, bucket, key].join("/")));
  },
  async deleteObject(bucket, key) {
    files.delete([database, bucket, key].join("/"));
  },
  async deleteObjects(bucket, keys) {
    for (const key of keys) files.delete([database, bucket, key].join("/"));
  },
});

const apps = new Map();
function appFor(database) {
  if (!apps.has(database)) {
    const auth = {
      enabled: true,
      jwt_secret: process.env.LITE_JWT_SECRET,
      publishable_key: process.env.LITE_PUBLISHABLE_KEY,
      secret_key: process.env.LITE_SECRET_KEY,
    };
    const [connection, api] = [connect(database), { schemas: ["public", "palaver_api"] }];
    const app = new App({ connection, api, auth, storage: { enabled: true } });
    app._storageAdapter = inMemory(database);
    apps.set(database, app);
  }
  return apps.get(database);
}

function answer(request) {
  const url = new URL(request.url);
  const [, database, ...rest] = url.pathname.split("/");
  url.pathname = "/" + rest.join("/");
  url.searchParams.delete("columns");
  return appFor(database).fetch(new Request(url, request), { peerAddress: null });
}

for (const kind of ["unhandledRejection", "uncaughtException"]) process.on(kind, () => {}); // of a database that was dropped
serve({ port: Number(process.env.LITE_PORT), hostname: "127.0.0.1", fetch: answer }, () => console.log("ready"));
