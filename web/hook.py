"""Hatch calls this before packing: the wheel and the sdist contain the built web app.

PALAVER_WEB=skip leaves it out. An editable install builds nothing: `make web` does.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _builder(root: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("palaver_web_build", Path(root, "web", "build.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class WebHook(BuildHookInterface):  # type: ignore[type-arg]
    def _is_wanted(self) -> bool:
        """Not where the built app came along, as it does in an sdist."""
        came_along = Path(self.root, "PKG-INFO").exists() and Path(self.root, "src/palaver/server/web/static").exists()
        return os.environ.get("PALAVER_WEB") != "skip" and not came_along

    def dependencies(self) -> list[str]:
        builder = _builder(self.root)
        return [builder.NODE_WHEEL] if self._is_wanted() and builder.own_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not self._is_wanted():
            return
        builder = _builder(self.root)
        try:
            builder.build()
        except builder.NoBuild as problem:
            raise SystemExit(f"{problem}; PALAVER_WEB=skip packs without the web app") from None
