"""The examples in deploy/ are true: what can be checked without installing them is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from palaver.server.settings import read_settings
from tests.server.processes import free_port, serving

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "palaver.service"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def unit() -> dict[str, list[str]]:
    """The settings of the unit; some may be there several times."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, with lines that go on joined."""
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
    assert options[0] == "--db"
    assert Path(options[1]).parent == Path("/var/lib") / found["StateDirectory"][0]
    given = dict(pair.split("=", 1) for pair in found["Environment"])
    assert read_settings(given, None).log_format == "json"
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
    """The very command, against a server on another port; and against none."""
    command = json.loads(one("HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "python"

    def check(url: str) -> int:
        script = command[2].replace("http://127.0.0.1:8484", url)
        return subprocess.run([sys.executable, command[1], script], capture_output=True).returncode

    with serving(f"sqlite:///{tmp_path}/x.db", tmp_path) as server:
        assert check(server.url) == 0
    assert check(f"http://127.0.0.1:{free_port()}") != 0
