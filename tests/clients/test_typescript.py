"""The TypeScript package: its own tests under Node against a running server, its types, and its examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.clients import ROOT
from tests.clients.server import Target, target
from tests.support import node

PACKAGE = ROOT / "clients" / "typescript"
SOURCES = ("src", "tests", "examples", "scripts", "package.json", "tsconfig.json", "tsconfig.build.json")
SECONDS = 120

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("typescript")) as one:
        yield one


def run_node(folder: Path, *arguments: str, server: Target | None = None) -> str:
    try:
        command = [node.node(), *arguments]
    except node.NoNode as reason:
        pytest.skip(f"the TypeScript package is not tested: {reason}")
    environment = {**os.environ, "NO_COLOR": "1", **(server.environment if server else {})}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def test_its_tests_pass_under_node_against_a_running_server(server: Target) -> None:
    files = sorted(str(one.relative_to(PACKAGE)) for one in (PACKAGE / "tests").glob("*.test.ts"))
    report = run_node(PACKAGE, "--test", "--test-reporter=tap", *files, server=server)
    assert "# fail 0" in report
    assert "# skipped 0" in report


@pytest.fixture(scope="module")
def built(server: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with its packages installed, its types generated, and its code compiled."""
    try:
        packages = node.installed_from_lock("typescript-client", PACKAGE)
    except node.NoNode as reason:
        pytest.skip(f"the types of the TypeScript package are not tested: {reason}")
    folder = tmp_path_factory.mktemp("package")
    for name in SOURCES:
        copy = shutil.copytree if (PACKAGE / name).is_dir() else shutil.copy
        copy(PACKAGE / name, folder / name)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    run_node(folder, "scripts/generate.mjs", str(server.document))
    run_node(folder, "node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json")
    return folder


def test_it_compiles_strictly_against_the_types_of_the_openapi_document(built: Path) -> None:
    run_node(built, "node_modules/typescript/bin/tsc", "--noEmit")
    assert (built / "dist" / "index.d.ts").exists()
    assert json.loads((built / "package.json").read_text()).get("dependencies") is None


def test_its_example_with_the_ai_sdk_remembers(built: Path, server: Target) -> None:
    told = run_node(built, "examples/ai-sdk.ts", server=server)
    assert "You said: I cook for two, without peanuts." in told
    assert told.count("user:") == 2


def test_no_file_of_the_package_names_a_registry() -> None:
    locked = json.loads((PACKAGE / "package-lock.json").read_text())["packages"]
    assert [name for name, one in locked.items() if "resolved" in one] == []
