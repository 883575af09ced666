"""The base of OpenAI's two chat APIs: keys, requests, and our errors for the SDK's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

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
from palaver.models.provider_client import ProviderClient, trace_options
from palaver.models.response_parsing import retry_after
from palaver.ports.models import JsonObject

try:
    import httpx2
    import openai as openai  # re-exported: the embedder gets the same error when it is missing
except ImportError as problem:
    raise MissingExtra("openai", "The OpenAI client") from problem

# Compatible servers report these errors without a code, only in words.
_TOO_LONG = re.compile(r"context.?(?:length|window|size)|maximum.{0,20}tokens|prompt is too long", re.IGNORECASE)
_MISSING = re.compile(r"previous.?response.{0,120}not.?found", re.IGNORECASE | re.DOTALL)
FAILURES = (openai.OpenAIError, httpx2.HTTPError, ValueError, TypeError, AttributeError, KeyError, IndexError)


def connector(
    *, api_key: str | None, base_url: str | None, timeout: float, retries: int = 0
) -> Callable[[], openai.AsyncOpenAI]:
    """Return a function that makes SDK clients. Raises InvalidInput if there is no key."""

    def connect() -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=retries)

    try:
        connect()
    except openai.OpenAIError:
        raise InvalidInput(
            "api_key", "is missing: set OPENAI_API_KEY (for a server without keys, any text will do)"
        ) from None
    return connect


class OpenAIClient(ProviderClient[openai.AsyncOpenAI]):
    """The base of both of OpenAI's chat APIs, for OpenAI or a server with a compatible API."""

    provider = "openai"
    failures = FAILURES
    prefix = "openai"  # of the default name

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 120.0,
        window: int | None = None,
    ) -> None:
        connect = connector(api_key=api_key, base_url=base_url, timeout=timeout)
        trial = connect()
        project = f"{trial.base_url}|{trial.organization or ''}|{trial.project or ''}"
        super().__init__(model, name or f"{self.prefix}:{model}", window, project, connect)

    async def _post(self, path: str, body: Mapping[str, object]) -> JsonObject:
        """Send a request and return the response as plain JSON."""
        return cast(
            JsonObject, await self._clients.get().post(path, body=body, cast_to=object, options=trace_options())
        )

    @asynccontextmanager
    async def _post_stream(self, path: str, body: Mapping[str, object]) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Send a request and yield the events of the stream as plain JSON.

        The SDK's own types are not used: making them costs more than everything else, for each message of a long
        prompt and for each token of the response.
        """
        kind = openai.AsyncStream[object]
        stream = await self._clients.get().post(
            path, body=body, cast_to=object, stream=True, stream_cls=kind, options=trace_options()
        )
        async with stream:
            yield cast(AsyncIterator[JsonObject], aiter(stream))

    def _translate_error(self, error: Exception) -> ModelError:
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return ModelUnavailable(self.name, "took too long")
        if isinstance(error, openai.APIConnectionError):
            return ModelUnavailable(self.name, "cannot be reached, or closed the connection")
        if isinstance(error, openai.APIStatusError):
            return self._refusal(error.code, error.message, error.status_code, error.response.headers)
        if isinstance(error, openai.APIError):
            return self._refusal(error.code or error.type, error.message)
        if isinstance(error, httpx2.HTTPError):
            return ModelUnavailable(self.name, "closed the connection")
        return BadModelResponse(self.name, "sent a malformed response")

    def _refusal(
        self, code: str | None, message: str | None, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> ModelError:
        """Return our error for an error that the service reported."""
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
