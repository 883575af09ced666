"""The web app as the server hands it out, and what it shows where the app was not built."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import httpx
import pytest

from palaver.server.settings import ServerSettings
from palaver.server.web import pages
from tests.server.conftest import running

ROOT = Path(__file__).parents[3]
WEB = ROOT / "web"
BUDGET = 180_000  # bytes of JavaScript of the first view, packed

built = pytest.mark.skipif(
    not (pages.STATIC / "index.html").exists(), reason="the web app is not built: run `make web`"
)


@built
def test_the_app_is_at_the_root_and_at_every_conversation(client: httpx.Client) -> None:
    for path in ("/", "/c/01K00000000000000000000000"):
        page = client.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["cache-control"] == "no-cache"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


@built
def test_assets_are_packed_and_kept_for_ever(client: httpx.Client) -> None:
    name = re.findall(r'src="(/assets/[^"]+\.js)"', client.get("/").text)[0]
    plain = client.get(name, headers={"Accept-Encoding": "identity"})
    assert "immutable" in plain.headers["cache-control"]
    assert "content-encoding" not in plain.headers
    packed = client.get(name, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert packed.headers["vary"] == "Accept-Encoding"


def test_a_file_that_is_installed_compressed_only_is_sent_plain_to_those_who_ask_for_it(tmp_path: Path) -> None:
    gzipped = gzip.compress(b"<p>drawn")  # it contains the time
    (tmp_path / "diagram.html.gz").write_bytes(gzipped)
    (tmp_path / "diagram.html.br").write_bytes(b"brotli")
    (tmp_path / "index.html").write_bytes(b"<p>app")
    files = pages.read_built_files(tmp_path)
    assert sorted(files) == ["diagram.html", "index.html"]
    assert files["diagram.html"].plain == b"<p>drawn"
    assert files["diagram.html"].packed == {"br": b"brotli", "gzip": gzipped}
    assert files["index.html"].packed == {}


@built
def test_the_page_that_draws_diagrams_is_the_same_in_every_coding(client: httpx.Client) -> None:
    plain = client.get("/diagram.html", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert client.get("/diagram.html", headers={"Accept-Encoding": "gzip"}).content == plain.content


@built
def test_there_is_nothing_but_what_was_built(client: httpx.Client) -> None:
    for path in ("/assets/", "/assets/none.js", "/static", "/../app.py", "/%2e%2e/app.py", "/assets/..%2f..%2fapp.py"):
        assert client.get(path).status_code == 404


@built
def test_the_first_view_is_light() -> None:
    page = (pages.STATIC / "index.html").read_text()
    names = re.findall(r'(?:src|href)="/(assets/[^"]+\.js)"', page)
    assert names
    files = pages.read_built_files(pages.STATIC)
    assert sum(len(gzip.compress(files[name].plain, 9)) for name in names) < BUDGET
    assert not re.findall(r"https?://", page)


def test_a_server_without_the_app_shows_the_api_and_how_to_build_it(tmp_path: Path) -> None:
    with (
        running(ServerSettings(url=f"sqlite:///{tmp_path}/a.db", embedder="none"), web=tmp_path) as server,
        server.client() as client,
    ):
        page = client.get("/")
        assert "make web" in page.text
        assert "append_turn" in page.text
        assert client.get("/image", params={"url": "https://example.org/a.png"}).status_code == 404
        assert "make web" not in client.get("/docs").text


@built
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:image/svg+xml,x",
        "//example.org/a.png",
        "/api/settings",
        "https://",
        'https://example.org/"onerror="x',
        "https://example.org/a b",
        "https://example.org;script-src *",
    ],
)
def test_a_frame_shows_nothing_but_pictures_of_the_web(client: httpx.Client, url: str) -> None:
    assert client.get("/image", params={"url": url}).status_code == 422


@built
def test_a_frame_for_a_picture_may_do_nothing_else(client: httpx.Client) -> None:
    respond = client.get("/image", params={"url": "https://user:word@example.org:8443/a.png?x=1&y=2"})
    policy = respond.headers["content-security-policy"]
    assert "img-src https://example.org:8443;" in policy
    assert "sandbox" in policy
    assert "script" not in policy
    assert "frame-ancestors 'self'" in policy
    assert 'src="https://user:word@example.org:8443/a.png?x=1&amp;y=2"' in respond.text


# ---- what is built from ---------------------------------------------------------------------------------------------


def test_the_lock_file_names_no_host_and_every_platform() -> None:
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert all("resolved" not in one for one in packages.values())
    assert all("integrity" in one for path, one in packages.items() if path)
    for path, one in packages.items():
        for name in one.get("optionalDependencies", {}):
            assert f"node_modules/{name}" in packages or f"{path}/node_modules/{name}" in packages, name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_the_wheel_has_the_app_in_it(tmp_path: Path) -> None:
    python = str(ROOT / ".venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    wheel = next(tmp_path.glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "palaver/server/web/static/index.html" in names
    assert any(name.endswith(".js.br") for name in names)
    assert "palaver/server/web/static/diagram.html.gz" in names
    assert not any(name.startswith("palaver/server/web/static/") and name.endswith((".js", ".css")) for name in names)
    assert "palaver/server/web/static/diagram.html" not in names  # 5 MB
    assert "palaver/server/web/static/diagram.html.br" not in names  # 1.2 MB, when every browser reads the other
    assert not any("node_modules" in name for name in names)
