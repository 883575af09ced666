"""The API on one page, rendered from the OpenAPI document, without scripts and resources of other hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.35rem 0}
code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f4f4;padding:.75rem;overflow:auto}
b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}pre{background:#222}
h2{border-color:#444}a{color:#8bf}}
"""


NOT_BUILT = "The web app is not built here: run `make web`, or `python web/build.py`, and start the server again."


def page(document: Mapping[str, Any], note: str = "") -> str:
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(document, path, method, operation))
    info = document["info"]
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in groups.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        f"{f'<p><strong>{escape(note)}</strong></p>' if note else ''}"
        f'<p><a href="/openapi.json">openapi.json</a></p>{body}</html>'
    )


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    title = escape(operation.get("description", "").split("\n")[0])
    rows = [_parameter(one) for one in operation.get("parameters", ())]
    example = _example(document, operation.get("requestBody", {}))
    statuses = ", ".join(operation["responses"])
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code><br>{title}</summary>"
        f"<p><code>{escape(operation['operationId'])}</code> · {statuses}</p>"
        f"{'<table>' + ''.join(rows) + '</table>' if rows else ''}"
        f"{'<pre>' + escape(json.dumps(example, indent=2, ensure_ascii=False)) + '</pre>' if example else ''}</details>"
    )


def _parameter(one: Mapping[str, Any]) -> str:
    need = "required" if one.get("required") else ""
    return (
        f"<tr><td><code>{escape(one['name'])}</code><td>{one['in']} {need}<td>{escape(one.get('description', ''))}</tr>"
    )


def _example(document: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    for content in body.get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        examples = document["components"]["schemas"].get(name, {}).get("examples", ())
        return examples[0] if examples else None
    return None
