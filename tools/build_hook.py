"""Hatch calls this before packing: the wheel and the sdist contain the token tables and the built web app.

PALAVER_WEB=skip leaves the web app out. An editable install gets the token tables only: `make web` builds the app.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _load(root: str, *path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"palaver_build_{Path(path[-1]).stem}", Path(root, *path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PalaverBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        tables, web = self._tables(), self._web()
        packages = [tables.PUBLISHED] if tables.is_missing() else []
        return [*packages, web.NODE_WHEEL] if self._is_app_wanted() and web.own_node() is None else packages

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        tables = self._tables()
        if tables.is_missing():
            tables.write()
        if version != "editable" and self._is_app_wanted():
            self._build_app()

    def _build_app(self) -> None:
        web = self._web()
        try:
            web.build()
        except web.NoBuild as problem:
            raise SystemExit(f"{problem}; PALAVER_WEB=skip packs without the web app") from None

    def _is_app_wanted(self) -> bool:
        """Return False for an sdist, which contains the built app."""
        came_along = Path(self.root, "PKG-INFO").exists() and Path(self.root, "src/palaver/server/web/static").exists()
        return os.environ.get("PALAVER_WEB") != "skip" and not came_along

    def _tables(self) -> ModuleType:
        return _load(self.root, "tools", "token_tables.py")

    def _web(self) -> ModuleType:
        return _load(self.root, "web", "build.py")
