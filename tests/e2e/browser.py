"""Find the Chromium of this machine and check the other needs of the end-to-end tests.

python -m tests.e2e.browser    says why they would be skipped, if they would be
"""

from __future__ import annotations

import os
import shutil
import sys

from palaver.server.web.pages import STATIC

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without its own sandbox where root runs it: Chromium refuses otherwise. Only this machine's own pages are opened.
ARGUMENTS = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()


def chromium() -> str | None:
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


def why_not() -> str | None:
    if not (STATIC / "index.html").exists():
        return "the web app is not built: run `make web`"
    if chromium() is None:
        return "there is no Chromium on this machine"
    return None


if __name__ == "__main__":
    if reason := why_not():
        print(f"*** THE END-TO-END TESTS ARE SKIPPED: {reason} ***", file=sys.stderr)
