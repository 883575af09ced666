"""What both of OpenAI's chat APIs share: connections, keys, and from the SDK's errors to ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from palaver.errors import (
    BadModelResponse,
    ContextTooLong,
    InvalidInput,
    MissingExtra,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PreviousResponseMissing,
    RateLimited,
)
from palaver.models.response_parsing import retry_after

try:
    import httpx2
    import openai
except ImportError as problem:
    raise MissingExtra("openai", "This model") from problem

# Servers that only speak the same format have no codes for it, only words.
_TOO_LONG = re.compile(r"context.?(?:length|window|size)|maximum.{0,20}tokens|prompt is too long", re.IGNORECASE)
_MISSING = re.compile(r"previous.?response.{0,120}not.?found", re.IGNORECASE | re.DOTALL)
FAILURES = (openai.OpenAIError, httpx2.HTTPError, ValueError, TypeError, AttributeError, KeyError, IndexError)


class OpenAIService:
    """Connections to OpenAI, or to a server that speaks its format. The key is out of reach of a repr."""

    def __init__(self, name: str, *, api_key: str | None, base_url: str | None, timeout: float) -> None:
        self.name = name

        def connect() -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)

        try:
            trial = connect()
        except openai.OpenAIError:
            raise InvalidInput(
                "api_key", "is missing: set OPENAI_API_KEY (a server without keys takes any text)"
            ) from None
        self.project = f"{trial.base_url}|{trial.organization or ''}|{trial.project or ''}"
        self._connect = connect
        # Connections belong to the event loop that opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()

    def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._connect()
        return self._clients[loop]

    async def whole(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer, as plain JSON."""
        return await self._client().post(path, body=body, cast_to=object)

    @asynccontextmanager
    async def pieces(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a stream, as plain JSON.

        The SDK's own types are not used on the way in or out: to make them costs more than all the rest, for each
        message of a long prompt and for each token of the answer.
        """
        kind = openai.AsyncStream[object]
        stream = await self._client().post(path, body=body, cast_to=object, stream=True, stream_cls=kind)
        async with stream:
            yield aiter(stream)

    async def aclose(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def failure(self, error: BaseException) -> ModelError:
        """Our error for the SDK's. It names the kind of trouble and never quotes the service."""
        if isinstance(error, ModelError):
            return error
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return ModelUnavailable(self.name, "took too long")
        if isinstance(error, openai.APIConnectionError):
            return ModelUnavailable(self.name, "is out of reach, or hung up")
        if isinstance(error, openai.APIStatusError):
            return self.refusal(error.code, error.message, error.status_code, error.response.headers)
        if isinstance(error, openai.APIError):
            return self.refusal(error.code or error.type, error.message)
        if isinstance(error, httpx2.HTTPError):
            return ModelUnavailable(self.name, "hung up")
        return BadModelResponse(self.name, "gave a malformed answer")

    def refusal(
        self, code: str | None, message: str | None, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> ModelError:
        code, message = code or "", message or ""
        if code == "context_length_exceeded" or (status in (None, 400, 413) and _TOO_LONG.search(message)):
            return ContextTooLong(self.name, status=status)
        if code == "previous_response_not_found" or _MISSING.search(message):
            return PreviousResponseMissing(self.name, status=status)
        if code == "insufficient_quota":
            return ModelRefused(self.name, "says that the account has no credit left", status=status)
        if status == 429 or code == "rate_limit_exceeded":
            return RateLimited(self.name, retry_after=retry_after(headers or {}), status=status)
        if status in (408, 409) or (status or 0) >= 500 or code == "server_error":
            return ModelUnavailable(self.name, "failed", status=status)
        if status in (401, 403):
            return ModelRefused(self.name, "does not accept the key", status=status)
        if status == 404:
            return ModelRefused(self.name, "is not known to the service", status=status)
        return ModelRefused(self.name, "refused the request", status=status)
