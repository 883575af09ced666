"""The wheel as strangers get it: its content, and each extra by itself in an empty environment (`make wheel-test`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A program for each extra, which fails if the extra does not bring what its part of Palaver needs.
PROBES = {
    "server": "import palaver.server.app, palaver.server.process",
    "local": "import onnxruntime, tokenizers; from palaver.models.offline import embedder",
    "postgres": "import palaver.engines.postgres.engine",
    "s3": "from palaver.files.storage import open_blobs; open_blobs('s3://files').store",
    "supabase": "import palaver.engines.postgres.supabase",
    "openai": "import palaver.models.openai.client",
    "anthropic": "import palaver.models.anthropic",
    "mcp": "import mcp, palaver.generation.mcp_tools",
    "otel": "import palaver.telemetry; from opentelemetry.exporter.otlp.proto.http import trace_exporter",
    "client": "import palaver; palaver.open('https://palaver.example', key='x')",
    "langchain": "import palaver.adapters.langchain",
    "langgraph": "import palaver.adapters.langgraph_checkpointer, palaver.adapters.langgraph_store",
    "openai-agents": "import palaver.adapters.openai_agents",
    "pydantic-ai": "import palaver.adapters.pydantic_ai",
    "llama-index": "import palaver.adapters.llama_index",
    "google-adk": "import palaver.adapters.google_adk",
    "agent-framework": "import palaver.adapters.agent_framework",
    "all": "import palaver.server.app, palaver.engines.postgres.engine, palaver.models.anthropic",
}
IN_THE_WHEEL = (
    "palaver/py.typed",
    "palaver/sync.pyi",
    "palaver/server/web/static/index.html",
    "palaver/engines/sqlite/queries.sql",
    "palaver/engines/postgres/migrations/0001_spine.sql",
    "palaver/models/offline/recall_minilm/model.onnx",
    "palaver/models/token_tables/o200k_base.bin",
    "palaver/models/token_tables/cl100k_base.bin",
)
NOT_INSTALLED = "import obstore"  # of the base install


def test_every_extra_has_a_probe() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PROBES.keys() == project["optional-dependencies"].keys()


@pytest.mark.costly
@pytest.mark.timeout(600)
def test_the_wheel_has_the_sql_the_model_and_the_token_tables(tmp_path: Path) -> None:
    """The short form of `make wheel-test`: without the web app, which the other tests are using."""
    built = build(tmp_path, PALAVER_WEB="skip")
    names = set(zipfile.ZipFile(built).namelist())
    assert {name for name in IN_THE_WHEEL if "/static/" not in name} <= names
    assert not [name for name in names if "__pycache__" in name]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_has_the_web_app_the_sql_and_the_model_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(IN_THE_WHEEL) <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"palaver"}
    assert not [name for name in names if "__pycache__" in name or "node_modules" in name]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_base_install_has_a_working_command_line(wheel: Path, tmp_path: Path) -> None:
    python = install(tmp_path / "env", str(wheel))
    version = run(str(python.with_name("palaver")), "--version").stdout.split()[1]
    assert wheel.name.startswith(f"palaver-{version}-")
    steps = [json.loads(line) for line in run(str(python), "-m", "palaver.cli", "demo", "--json").stdout.splitlines()]
    assert [step["step"] for step in steps] == ["conversation", "context", "recall", "kill", "forget"]
    with pytest.raises(subprocess.CalledProcessError):
        run(str(python), "-c", NOT_INSTALLED)
    refused = subprocess.run([python.with_name("palaver"), "serve"], capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 1
    assert 'pip install "palaver[server]"' in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", PROBES)
def test_each_extra_works_by_itself(extra: str, wheel: Path, tmp_path: Path) -> None:
    python = install(tmp_path / "env", f"{wheel}[{extra}]")
    run(str(python), "-c", PROBES[extra])


def build(folder: Path, **more: str) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT), **more)
    (built,) = folder.glob("*.whl")
    return built


def install(folder: Path, requirement: str) -> Path:
    """Install into a new environment, and return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile", requirement)
    return python


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command; `more` are environment variables."""
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=os.environ | more)
    assert done.returncode == 0 or NOT_INSTALLED in command, done.stderr[-2_000:]
    done.check_returncode()
    return done
