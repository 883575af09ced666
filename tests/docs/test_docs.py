"""The documentation: its code runs, its links lead somewhere, and its pages say whom they are for."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from os import environ
from pathlib import Path

import pytest
import typer
import yaml

from palaver.cli import app
from palaver.server.settings import read_settings

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^```py$", re.MULTILINE)
REASON = re.compile(r"^<!-- not run: .{10,} -->\n```py$", re.MULTILINE)
NUMBER_NOT_RUN = 20  # blocks that no test can run; each has its reason in a comment above it
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE_PAGES = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "llms.txt"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


CODE = {name_of(page): "\n".join(BLOCK.findall(page.read_text())) for page in PAGES if BLOCK.search(page.read_text())}
# Pages of one topic share an interpreter and what they import: the SDKs, the database driver, or only the library.
TOPICS = {
    "models": lambda code: "generate" in code or "anthropic" in code,
    "postgres": lambda code: "DATABASE_URL" in code,
    "library": lambda code: True,
}
# Runs each page as a program of its own, in a folder of its own, and prints what went wrong as JSON.
RUNNER = """
import json, os, sys, traceback, types
problems, start = {}, os.getcwd()
for name, code in json.load(sys.stdin).items():
    os.makedirs(name)
    os.chdir(name)
    page = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(code, name, "exec"), vars(page))
    except BaseException:
        problems[name] = traceback.format_exc()
    os.chdir(start)
print(json.dumps({"problems": problems}), file=sys.stderr)
"""


def topic_of(code: str) -> str:
    return next(topic for topic, is_about in TOPICS.items() if is_about(code))


@pytest.mark.parametrize("topic", TOPICS)
def test_documented_code_runs(
    topic: str, tmp_path: Path, request: pytest.FixtureRequest, subtests: pytest.Subtests
) -> None:
    """The blocks of a page one after another, as a reader would try them."""
    pages = {name: code for name, code in CODE.items() if topic_of(code) == topic}
    more = {"DATABASE_URL": request.getfixturevalue("postgres_url")} if topic == "postgres" else {}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(pages),
        cwd=tmp_path,
        env=environ | more,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stderr.splitlines()[-1])["problems"]
    for name in pages:
        with subtests.test(name):
            assert name not in problems, problems[name]


def test_code_that_does_not_run_is_counted_and_has_a_reason() -> None:
    texts = [page.read_text() for page in PAGES]
    assert sum(len(NOT_RUN.findall(text)) for text in texts) == NUMBER_NOT_RUN
    assert sum(len(REASON.findall(text)) for text in texts) == NUMBER_NOT_RUN


DATA = re.compile(r"^```(json|toml|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_blocks_of_data_can_be_read_and_the_server_knows_their_settings(tmp_path: Path) -> None:
    blocks = [found for page in PAGES for found in DATA.findall(page.read_text())]
    assert {language for language, _ in blocks} == {"json", "toml", "yaml"}
    for language, text in blocks:
        if language == "toml":
            file = tmp_path / "palaver.toml"
            file.write_text(text)
            read_settings({}, str(file))
        else:
            assert (json.loads if language == "json" else yaml.safe_load)(text)


# Pages


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_every_page_says_whom_it_is_for_and_what_they_can_do_afterwards(page: Path) -> None:
    first = page.read_text().split("\n\n")[1]
    assert first.startswith("This page is for "), first
    assert "By the end, you " in first, first
    assert len(first.splitlines()) <= 2, first


MOVES = sorted(page for page in (ROOT / "docs/come-from").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", MOVES, ids=name_of)
def test_a_page_for_people_from_elsewhere_has_tables_of_names_and_of_what_differs(page: Path) -> None:
    text = page.read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert min(sections["Names"].count("\n|"), sections["Defaults that differ"].count("\n|")) >= 6  # with the heads
    assert f"({page.name})" in (ROOT / "docs/come-from/index.md").read_text()


# Links


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The anchors of the page's headings, as the site and the repository page make them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    bare = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in bare}


@pytest.mark.parametrize("page", PROSE_PAGES, ids=name_of)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", without_code(page.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


def test_the_first_page_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = [line.split("|")[1] for line in (ROOT / "docs/index.md").read_text().splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", " ".join(rows))) == set(extras)


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)


def test_the_search_of_pages_opened_from_the_disk_loads_a_file_of_ours() -> None:
    """Without it, the plugin `offline` would load a file with the same name from another host."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert "offline" in site["plugins"]
    (shim,) = [one["path"] for one in site["extra"]["polyfills"] if "iframe-worker" in one["path"]]
    assert (ROOT / "docs" / shim).exists()


# Commands


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of every `palaver` command in the console blocks of a page."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[|&;] *|\w+=\S+ )palaver ([^|&;>#]*)", line.strip())
            if found:
                yield shlex.split(found[1])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page: Path) -> None:
    top = typer.main.get_command(app)
    for words in commands_in(page.read_text()):
        command = top
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        known = {name for one in [*command.params, *top.params] for name in [*one.opts, *one.secondary_opts]}
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert command is not top or not words or words[0].startswith("--"), words
        assert options <= known | {"--help", "--version"}, options - known
