"""OpenAI's own client, with one URL changed: Embeddings."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.server.compat.conftest import gpt_of
from tests.server.conftest import running


def test_vectors_come_from_the_embedder_of_recall(settings: Any) -> None:
    with running(settings(embedder="local")) as server, gpt_of(server) as gpt:
        made = gpt.embeddings.create(model="local", input=["a dog", "a puppy", "the tax return"])  # sent as base64
        again = gpt.embeddings.create(model=made.model, input="a dog", encoding_format="float")
        dog, puppy, tax = (one.embedding for one in made.data)
        assert again.data[0].embedding == pytest.approx(dog, abs=1e-6)
        assert _cosine(dog, puppy) > _cosine(dog, tax) + 0.2
        assert made.usage.prompt_tokens > 3


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_what_the_embedder_cannot_do_is_refused_by_field(settings: Any) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"input": []}, "input"),
        ({"input": [""]}, "input"),
        ({"input": [[1, 2, 3]]}, "token ids"),
        ({"input": ["x"] * 3_000}, "2,048"),
        ({"input": "x", "dimensions": 7}, "dimensions"),
    ]
    with running(settings(embedder="local")) as server, gpt_of(server) as gpt:
        for body, cause in bad:
            with pytest.raises(openai.BadRequestError, match=cause):
                gpt.embeddings.create(**{"model": "local", **body})
        with pytest.raises(openai.NotFoundError, match="embedder of this server is"):
            gpt.embeddings.create(model="text-embedding-3-small", input="x")


def test_without_an_embedder_or_the_right_there_are_none(settings: Any) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        with pytest.raises(openai.NotFoundError, match="PALAVER_EMBEDDER"):
            gpt_of(server, server.key()).embeddings.create(model="local", input="x")
        with pytest.raises(openai.PermissionDeniedError):
            gpt_of(server, server.key(rights="read")).embeddings.create(model="local", input="x")
