"""A real pgbouncer in transaction mode, in front of the Postgres of the tests. Debian's package `pgbouncer` has it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from tests.support import postgres_server
from tests.support.postgres_server import Server

START_SECONDS = 20
CONFIGURATION = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
logfile = {folder}/log
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
"""


@dataclass(frozen=True, slots=True)
class Bouncer:
    port: int

    def in_front_of(self, url: str) -> str:
        """The same database through this bouncer, with the documented option."""
        parts = urlsplit(url)
        place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=place, query="pgbouncer=true"))


def program() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        why = "no pgbouncer here: what Palaver promises behind one is not tested (Debian: apt-get install pgbouncer)"
        warnings.warn(why, stacklevel=2)  # a skip is easily overlooked
        pytest.skip(why)
    return found


@contextmanager
def running(server: Server, *, size: int) -> Iterator[Bouncer]:
    """One that has `size` connections to the server for each database, however many come."""
    command, folder = program(), postgres_server.new_folder()
    try:
        port = _configure(folder, server, size)
        process = subprocess.Popen(
            [command, "-q", str(folder / "ini")], stdin=subprocess.DEVNULL, cwd="/", **postgres_server.somebody()
        )
        try:
            _wait_until_ready(process, port, folder)
            yield Bouncer(port)
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, server: Server, size: int) -> int:
    parts, port = urlsplit(server.url), postgres_server.free_port()
    values = {"host": parts.hostname, "port": parts.port or 5432, "listen": port, "folder": folder, "size": size}
    users = {
        unquote(parts.username or ""): unquote(parts.password or ""),
        postgres_server.APPLICATION: postgres_server.APPLICATION_PASSWORD,
    }
    (folder / "ini").write_text(CONFIGURATION.format(**values))
    (folder / "users").write_text("".join(f'"{name}" "{secret}"\n' for name, secret in users.items()))
    for file in ("ini", "users"):
        (folder / file).chmod(0o644)  # inside a folder that is closed to others
    return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    log = folder / "log"
    raise AssertionError(f"pgbouncer did not start: {log.read_text() if log.exists() else process.returncode}")
