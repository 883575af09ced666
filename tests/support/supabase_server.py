"""A PostgREST-compatible server on the tests' own Postgres: @supabase/lite from npm, which is not PostgREST.

It is installed once, into a cache folder, and started by the first test that wants it. `PALAVER_TEST_CACHE` says where
that folder is. Tokens are made here, as a project's auth server would sign them.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import jwt

from tests.support.postgres_server import free_port

PACKAGES = ("@supabase/lite@0.10.0", "@hono/node-server@1.19.18", "postgres@3.4.9")
LAUNCHER = Path(__file__).with_name("supabase_lite.mjs")
INSTALL_SECONDS, START_SECONDS = 240, 60
# A project's database before our schema.
ROLES = [
    f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    for role in (
        "anon NOLOGIN NOINHERIT",
        "authenticated NOLOGIN NOINHERIT",
        "service_role NOLOGIN NOINHERIT BYPASSRLS",
        "authenticator LOGIN NOINHERIT PASSWORD 'not a secret'",
    )
] + ["GRANT anon, authenticated, service_role TO authenticator"]
# The server looks a token's user up there, and continues if there is none.
USERS = """
CREATE SCHEMA auth;
CREATE TABLE auth.users (id uuid PRIMARY KEY);
GRANT USAGE ON SCHEMA auth TO authenticator;
GRANT SELECT ON auth.users TO authenticator;
"""
# The part of Supabase's storage schema that policies and files need.
STORAGE = """
CREATE SCHEMA storage;
CREATE TABLE storage.buckets (
  id text PRIMARY KEY, name text NOT NULL UNIQUE, owner uuid, owner_id text, public boolean DEFAULT false,
  avif_autodetection boolean DEFAULT false, file_size_limit bigint, allowed_mime_types text[],
  created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now()
);
CREATE TABLE storage.objects (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), bucket_id text REFERENCES storage.buckets (id), name text,
  owner uuid, owner_id text, metadata jsonb, user_metadata jsonb, version text,
  path_tokens text[] GENERATED ALWAYS AS (string_to_array(name, '/')) STORED,
  created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(),
  last_accessed_at timestamptz DEFAULT now(),
  UNIQUE (bucket_id, name)
);
CREATE FUNCTION storage.foldername(name text) RETURNS text[] LANGUAGE sql IMMUTABLE
  RETURN (string_to_array(name, '/'))[1 : array_length(string_to_array(name, '/'), 1) - 1];
ALTER TABLE storage.buckets ENABLE ROW LEVEL SECURITY;
ALTER TABLE storage.objects ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA storage TO anon, authenticated, service_role;
GRANT ALL ON ALL TABLES IN SCHEMA storage TO anon, authenticated, service_role;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA storage TO anon, authenticated, service_role;
-- The storage server's own look at its tables; in a project that is another login.
GRANT USAGE ON SCHEMA storage TO authenticator;
GRANT ALL ON ALL TABLES IN SCHEMA storage TO authenticator;
CREATE POLICY server ON storage.buckets TO authenticator USING (true);
CREATE POLICY server ON storage.objects TO authenticator USING (true);
"""
AUTHENTICATOR, AUTHENTICATOR_PASSWORD = "authenticator", "not a secret"


class NoSupabase(Exception):
    """It is not available here. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Lite:
    """A running server. Every database of the Postgres behind it is a project."""

    address: str
    pid: int
    jwt_secret: str
    publishable_key: str
    secret_key: str

    def project(self, database: str) -> str:
        return f"supabase+{self.address}/{database}"

    def token(self, user: str, tenant: str | None = "acme", *, lasts: int = 3600, **claims: Any) -> str:
        """Return the token of a user of that name after signing in; `claims` are put into app_metadata."""
        known = {key: value for key, value in {"tenant": tenant, **claims}.items() if value is not None}
        return self.signed({"sub": user_id(user), "app_metadata": known}, lasts)

    def signed(self, claims: dict[str, Any], lasts: int = 3600) -> str:
        whole = {"role": "authenticated", "aud": "authenticated", "exp": int(time.time()) + lasts, **claims}
        return jwt.encode(whole, self.jwt_secret, algorithm="HS256")


def user_id(name: str) -> str:
    """Users have UUIDs; in tests they have names."""
    return str(uuid5(NAMESPACE_URL, name))


# ---- installing ----------------------------------------------------------------------------------------------------


def installed() -> Path:
    """The folder with the packages; the first who asks installs them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NoSupabase("no PostgREST-compatible server: it needs node and npm")
    root = os.environ.get("PALAVER_TEST_CACHE") or Path.home() / ".cache" / "palaver-tests"
    folder = Path(root) / "supabase-lite"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "installed"
        if not done.exists() or done.read_text() != " ".join(PACKAGES):
            _install(folder)
            done.write_text(" ".join(PACKAGES))
    return folder


def _install(folder: Path) -> None:
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]
    try:
        subprocess.run(
            ["npm", "install", *options, *PACKAGES],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            env={**os.environ, "DO_NOT_TRACK": "1"},
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        raise NoSupabase(
            f"no PostgREST-compatible server: npm could not install it ({type(problem).__name__})"
        ) from None


# ---- running -------------------------------------------------------------------------------------------------------


def start(postgres: str) -> Lite:
    """A server over the Postgres at this address, signed in as `authenticator`."""
    folder = installed()
    launcher = folder / f"launcher-{secrets.token_hex(4)}.mjs"
    launcher.write_text(LAUNCHER.read_text())
    port, keys = free_port(), [secrets.token_urlsafe(32) for _ in range(3)]
    jwt_secret, publishable, secret = keys[0], f"sb_publishable_{keys[1]}", f"sb_secret_{keys[2]}"
    process = subprocess.Popen(
        ["node", str(launcher)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={
            **os.environ,
            "DO_NOT_TRACK": "1",
            "EXPERIMENTAL_STORAGE": "1",
            "LITE_PORT": str(port),
            "LITE_POSTGRES": postgres,
            "LITE_JWT_SECRET": jwt_secret,
            "LITE_PUBLISHABLE_KEY": publishable,
            "LITE_SECRET_KEY": secret,
        },
    )
    assert process.stdout is not None
    alarm = threading.Timer(START_SECONDS, process.kill)
    alarm.start()
    first = process.stdout.readline()  # it says when it is ready; an end of the file says that it is not
    alarm.cancel()
    launcher.unlink()
    if first.strip() != b"ready":
        process.kill()
        raise NoSupabase("no PostgREST-compatible server: @supabase/lite did not start")
    threading.Thread(target=process.stdout.read, daemon=True).start()  # or it would stop when nobody listens
    return Lite(f"http://127.0.0.1:{port}", process.pid, jwt_secret, publishable, secret)
