"""`python -m tools.sbom_version FILE`: add the version of Palaver, which pyproject.toml does not contain, to a list."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path


def write_version(sbom: Path) -> None:
    document = json.loads(sbom.read_text())
    component = document["metadata"]["component"]
    component["version"] = version("palaver")
    component["purl"] = f"pkg:pypi/palaver@{component['version']}"
    sbom.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    write_version(Path(sys.argv[1]))
