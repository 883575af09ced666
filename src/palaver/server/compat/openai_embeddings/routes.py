"""The route of OpenAI's Embeddings: vectors from the embedder that recall uses."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence

from fastapi import Request
from starlette.responses import Response

from palaver.conversations.internals import components_of, worker_of
from palaver.core.budgets import payer_of
from palaver.core.rights import require_right
from palaver.model import GENERATE
from palaver.models.embedding_budget import price_of
from palaver.models.tokens import counter_for
from palaver.ports.models import Embedder
from palaver.server.compat import responses
from palaver.server.compat.request import invalid, require_text
from palaver.server.dependencies import Reply, ServicesDep, StoreDep
from palaver.server.errors import Refusal

MAX_TEXTS = 2_048
NO_TOKENS = "must be text, not token ids: LangChain sends text with check_embedding_ctx_length=False"


async def create_embeddings(request: Request, services: ServicesDep, store: StoreDep) -> Response:
    """Embed texts with the embedder of this server. Nothing is stored.

    `model` is the name of that embedder or of its setting (`local`). Vectors are numbers, or base64 of 32-bit floats.
    """
    require_right(store.scope, GENERATE)
    body, _ = await responses.read_body(request)
    embedder = worker_of(services.store).embedder
    if embedder is None:
        raise Refusal(404, "No embedder is configured here: set PALAVER_EMBEDDER", code="model_not_found")
    texts = _parse_input(body.get("input"))
    as_base64 = _parse_options(body, embedder, services.settings.embedder)
    count = counter_for(embedder.name)
    used = sum(count(text) for text in texts)
    price = price_of(embedder, worker_of(services.store).models)
    await components_of(store).budgets.take_embedding(payer_of(store.scope), embedder.name, used, price)
    vectors = await embedder.embed(texts)
    data = [
        {"object": "embedding", "index": n, "embedding": _base64(vector) if as_base64 else vector}
        for n, vector in enumerate(vectors)
    ]
    return Reply(
        {
            "object": "list",
            "data": data,
            "model": embedder.name,
            "usage": {"prompt_tokens": used, "total_tokens": used},
        }
    )


def _parse_input(given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise invalid("input", "must be a text, or a list of texts")
    if len(texts) > MAX_TEXTS:
        raise invalid("input", f"has {len(texts):,} texts; the limit is {MAX_TEXTS:,}")
    if any(isinstance(one, int | list) for one in texts):
        raise invalid("input", NO_TOKENS)
    if not all(isinstance(one, str) and one for one in texts):
        raise invalid("input", "must be texts that are not empty")
    return texts


def _parse_options(body: Mapping[str, object], embedder: Embedder, setting: str) -> bool:
    """Check the options against the embedder. Returns whether vectors are sent as base64."""
    model = require_text("model", body.get("model"))
    if model not in (embedder.name, setting):
        raise Refusal(404, f"The embedder of this server is {embedder.name!r}", code="model_not_found", field="model")
    if body.get("dimensions") not in (None, embedder.dimensions):
        raise invalid("dimensions", f"must be {embedder.dimensions}: the embedder makes no other vectors")
    format = body.get("encoding_format") or "float"
    if format not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    return format == "base64"


def _base64(vector: Sequence[float]) -> str:
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
