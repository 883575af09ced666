"""Embeddings by OpenAI, or by any server with a compatible API (`base_url`, or OPENAI_BASE_URL)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

import msgspec

from palaver.errors import InvalidInput, ModelUnavailable
from palaver.models.openai.client import connector, openai
from palaver.models.provider_client import ClientPool

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}

# A token has at least one byte, so these stay below the limits of 8,192 tokens per text and 300,000 per request,
# whatever the language, without counting tokens.
MAX_TEXT_BYTES, MAX_BATCH_BYTES = 8_000, 256_000
MAX_BATCH = 128


class OpenAIEmbedder:
    """An embedder that returns vectors of unit length. Only the first 8,000 bytes of a text are read.

    The key comes from `api_key` or from OPENAI_API_KEY. `timeout` covers one request of up to 128 texts with its
    retries. `dimensions` is 0 for a model that is not in the table, until its first response.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        if not model.strip():
            raise InvalidInput("embedder", 'has no model: use "openai:text-embedding-3-small"')
        self.model = model
        self.name = f"openai:{model}"
        self.dimensions = DIMENSIONS.get(model, 0)
        self._timeout = timeout
        connect = connector(api_key=api_key, base_url=base_url, timeout=timeout, retries=retries)
        self._clients = ClientPool(connect)

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.model!r})"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order. Raises ModelUnavailable."""
        vectors: list[list[float]] = []
        for batch in _batches([_clean(text) for text in texts]):
            vectors += self._decode(await self._request(batch), len(batch))
        return vectors

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    async def _request(self, batch: list[str]) -> bytes:
        """Send a batch and return the body of the response."""
        try:
            async with asyncio.timeout(self._timeout):  # the SDK's own covers one attempt, without pauses
                response = await self._clients.get().embeddings.with_raw_response.create(
                    model=self.model, input=batch, encoding_format="float"
                )
                return response.content
        except (TimeoutError, openai.APITimeoutError):
            failure = self._unavailable("took too long")
        except openai.APIStatusError as error:
            failure = self._unavailable("refused or failed", error.status_code)
        except openai.OpenAIError:
            failure = self._unavailable("cannot be reached")
        # Raised outside the handler, so that it does not carry the SDK's error: that one quotes request and response.
        raise failure

    def _decode(self, body: bytes, count: int) -> list[list[float]]:
        try:
            items = sorted(msgspec.json.decode(body, type=_Response).data, key=lambda item: item.index)
        except (msgspec.DecodeError, UnicodeDecodeError):
            items = []
        lengths = {len(item.embedding) for item in items}
        if [item.index for item in items] != list(range(count)) or len(lengths) != 1:
            raise self._unavailable("sent a malformed response")
        (length,) = lengths
        vectors = [self._normalize(item.embedding) for item in items]
        if length != (self.dimensions or length):
            raise self._unavailable(f"sent vectors of {length:,} dimensions, not {self.dimensions:,}")
        self.dimensions = length
        return vectors

    def _normalize(self, vector: list[float]) -> list[float]:
        norm = math.hypot(*vector)
        if not 0 < norm < math.inf:
            raise self._unavailable("sent a vector of zeros")
        return [value / norm for value in vector]

    def _unavailable(self, problem: str, status: int | None = None) -> ModelUnavailable:
        return ModelUnavailable(self.name, problem, status=status)


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Response(msgspec.Struct):
    data: list[_Item]


def _clean(text: str) -> str:
    """Return the beginning of a text, with "?" for lone surrogates. The service rejects a batch with a blank text."""
    data = text.strip()[:MAX_TEXT_BYTES].encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return data.decode("utf-8", "ignore") or "."


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    room = MAX_BATCH_BYTES
    for text in texts:
        size = len(text.encode())
        if batch and (len(batch) == MAX_BATCH or size > room):
            yield batch
            batch, room = [], MAX_BATCH_BYTES
        batch.append(text)
        room -= size
    if batch:
        yield batch
