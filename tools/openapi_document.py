"""Write the OpenAPI document of the server to a file: `python -m tools.openapi_document FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from palaver.server.app import create_app
from palaver.server.settings import ServerSettings

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(create_app(ServerSettings()).openapi()))
