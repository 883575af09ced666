"""Embeddings by OpenAI, or by any server that speaks its wire format (`base_url`, or OPENAI_BASE_URL)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

import msgspec

from palaver.errors import InvalidInput, MissingExtra, ModelUnavailable

try:
    import openai
except ImportError as problem:
    raise MissingExtra("openai", "The OpenAI embedder") from problem

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}

# A token is never less than a byte. So these are under the limits of 8,192 tokens a text and 300,000 a request,
# whatever the language, without counting.
MAX_TEXT_BYTES, MAX_BATCH_BYTES = 8_000, 256_000
MAX_BATCH = 128


class OpenAIEmbedder:
    """Vectors of unit length. Only the first 8,000 bytes of a text count.

    The key comes from `api_key` or from OPENAI_API_KEY. `timeout` is for one request of up to 128 texts, its retries
    included. `dimensions` is 0 for a model that is not in the table, until its first answer.
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
            raise InvalidInput("embedder", 'names no model: use "openai:text-embedding-3-small"')
        self.model = model
        self.name = f"openai:{model}"
        self.dimensions = DIMENSIONS.get(model, 0)
        self._timeout = timeout

        def connect() -> openai.AsyncOpenAI:  # holds the key, out of reach of a repr or a dump of the attributes
            return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=retries)

        try:
            connect()
        except openai.OpenAIError:
            raise InvalidInput(
                "api_key", "is missing: set OPENAI_API_KEY (a server without keys takes any text)"
            ) from None
        self._connect = connect
        # Connections belong to the event loop that opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.model!r})"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in their order. Raises ModelUnavailable."""
        vectors: list[list[float]] = []
        for batch in _batches([_readable(text) for text in texts]):
            vectors += self._vectors(await self._ask(batch), len(batch))
        return vectors

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _ask(self, batch: list[str]) -> bytes:
        """The body of the answer."""
        try:
            async with asyncio.timeout(self._timeout):  # the SDK's own is for each try, without the pauses
                answer = await self._client().embeddings.with_raw_response.create(
                    model=self.model, input=batch, encoding_format="float"
                )
                return answer.content
        except (TimeoutError, openai.APITimeoutError):
            failure = self._unavailable("took too long")
        except openai.APIStatusError as error:
            failure = self._unavailable("refused or failed", error.status_code)
        except openai.OpenAIError:
            failure = self._unavailable("is out of reach")
        # Raised out here, so that it does not carry the SDK's error: that one quotes the answer and the request.
        raise failure

    def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._connect()
        return self._clients[loop]

    def _vectors(self, body: bytes, count: int) -> list[list[float]]:
        try:
            items = sorted(msgspec.json.decode(body, type=_Answer).data, key=lambda item: item.index)
        except (msgspec.DecodeError, UnicodeDecodeError):
            items = []
        lengths = {len(item.embedding) for item in items}
        if [item.index for item in items] != list(range(count)) or len(lengths) != 1:
            raise self._unavailable("gave a malformed answer")
        (length,) = lengths
        vectors = [self._unit(item.embedding) for item in items]
        if length != (self.dimensions or length):
            raise self._unavailable(f"gave vectors of {length:,} dimensions, not {self.dimensions:,}")
        self.dimensions = length
        return vectors

    def _unit(self, vector: list[float]) -> list[float]:
        norm = math.hypot(*vector)
        if not 0 < norm < math.inf:
            raise self._unavailable("gave a vector without a direction")
        return [value / norm for value in vector]

    def _unavailable(self, problem: str, status: int | None = None) -> ModelUnavailable:
        return ModelUnavailable(self.name, problem, status=status)


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


def _readable(text: str) -> str:
    """The beginning, with "?" for halves of surrogate pairs. A blank text would be refused, with all of its batch."""
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
