"""Everything that is released carries the number of the package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import palaver

ROOT = Path(__file__).parents[2]


def test_the_changelog_begins_with_this_version_and_its_date() -> None:
    first = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert re.fullmatch(rf"{re.escape(palaver.__version__)} \(\d{{4}}-\d\d-\d\d\)", first)


def test_the_typescript_package_has_the_number_of_the_server_that_it_is_generated_from() -> None:
    package, lock = (
        json.loads((ROOT / "clients/typescript" / name).read_text()) for name in ("package.json", "package-lock.json")
    )
    assert package["version"] == lock["version"] == lock["packages"][""]["version"] == palaver.__version__


def test_the_upgrade_guide_and_the_version_page_are_about_this_version() -> None:
    minor = palaver.__version__.rpartition(".")[0]
    assert f"to {palaver.__version__}\n" in (ROOT / "docs/how-to/upgrading.md").read_text()
    assert f"`palaver>={minor},<" in (ROOT / "docs/reference/versioning.md").read_text()
