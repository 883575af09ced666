"""Garbage collection of a server process does not look at what lives as long as the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from palaver.server.settings import PASSED_ON, ServerSettings

PROGRAM = """
import gc
from palaver.server.app import from_environment
app = from_environment()
print(gc.get_freeze_count() > 10 * len(gc.get_objects()))
"""


def test_modules_and_routes_are_left_out_of_full_collections(tmp_path: Path) -> None:
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/a.db")
    environment = {**os.environ, PASSED_ON: settings.to_text()}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert ran.stdout == "True\n", ran.stderr
