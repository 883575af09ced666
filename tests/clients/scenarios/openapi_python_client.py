"""A client that openapi-python-client generates from the OpenAPI document: every module is imported, some are used."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.clients.scenarios.harness import KEY, URL, main, scenario

NAME = "palaver_client"


@cache
def generated() -> tuple[Any, str]:
    """The package, and what the generator said."""
    folder = Path(tempfile.mkdtemp())
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate"]
    options = ["--path", os.environ["PALAVER_DOCUMENT"], "--meta", "none", "--output-path", str(folder / NAME)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it formats with ruff from there
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=240, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    return importlib.import_module(NAME), done.stdout + done.stderr


def client() -> Any:
    return generated()[0].AuthenticatedClient(base_url=URL, token=KEY, raise_on_unexpected_status=True)


def part(path: str) -> Any:
    generated()
    return importlib.import_module(f"{NAME}.{path}")


@scenario
def generated_without_a_warning() -> None:
    said = generated()[1]
    assert "WARNING" not in said.upper(), said


@scenario
def every_module_is_imported() -> None:
    package = generated()[0]
    names = [one.name for one in pkgutil.walk_packages(package.__path__, f"{NAME}.")]
    for name in names:
        importlib.import_module(name)
    assert len(names) > 80


def new_conversation() -> Any:
    body = part("models").NewConversation(title="Peanuts", metadata=None)
    made = part("api.conversations.create_conversation").sync(client=client(), body=body)
    assert made.title == "Peanuts", made
    return made


@scenario
def conversation_made_and_listed() -> None:
    made = new_conversation()
    page = part("api.conversations.list_conversations").sync(client=client(), limit=5)
    assert made.id in [one.id for one in page.items]


@scenario
def turns_appended_and_read() -> None:
    made, turns = new_conversation(), part("models")
    body = turns.NewTurn(role=turns.NewTurnRole.USER, content="I am allergic to peanuts.")
    part("api.turns.append_turn").sync(made.id, client=client(), body=body)
    page = part("api.turns.list_turns").sync(made.id, client=client())
    assert [one.content for one in page.items] == ["I am allergic to peanuts."]


@scenario
def context_built() -> None:
    made = new_conversation()
    body = part("models").ContextQuery(token_budget=1_000, query="What can I eat?")
    built = part("api.memory.build_context").sync(made.id, client=client(), body=body)
    assert built.tokens >= 0


@scenario
def problem_document_is_typed() -> None:
    response = part("api.conversations.get_conversation").sync_detailed("01KA2V4YFM3Q2D7N9V1C6T0000", client=client())
    assert response.status_code == 404
    assert isinstance(response.parsed, part("models").Problem)


if __name__ == "__main__":
    main("openapi-python-client")
