"""The list of components of a release names the release."""

from __future__ import annotations

import json
from pathlib import Path

from tools.sbom_version import write_version

import palaver


def test_the_main_component_has_the_version_of_the_package(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"components": [], "metadata": {"component": {"name": "palaver"}}}))
    write_version(sbom)
    named = json.loads(sbom.read_text())["metadata"]["component"]
    assert named == {
        "name": "palaver",
        "version": palaver.__version__,
        "purl": f"pkg:pypi/palaver@{palaver.__version__}",
    }
