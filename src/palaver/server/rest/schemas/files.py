"""Bodies of attachments, uploads and links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from palaver import model
from palaver.server.rest.schemas.base import EmptyBody, Name, RequestBody, ResponseBody, examples, mirrors

Seconds = Annotated[int, Field(ge=1, le=86_400)]


@mirrors(model.Attachment, omit=("path", "owner"))
class Attachment(ResponseBody):
    model_config = examples(
        {
            "id": "01KA2V6M3T9Q4X7C5N1R8F2B6D",
            "filename": "contract.pdf",
            "media_type": "application/pdf",
            "bytes": 48_213,
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "turn": None,
        }
    )
    media_type: str = Field(description="Detected from the bytes.")
    turn: str | None = Field(description="The turn that the file belongs to.")


class Attachments(ResponseBody):
    items: list[Attachment]
    next: str | None
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class FileText(ResponseBody):
    model_config = examples(
        {
            "attachment": "01KA2V…",
            "problem": None,
            "start": 0,
            "text": "The contract ends …",
            "characters": 8_120,
        }
    )
    attachment: str
    problem: str | None = Field(description="Why there is no text, such as `needs a password`.")
    start: int
    text: str
    characters: int = Field(description="The length of the whole text.")


class NewUpload(RequestBody):
    model_config = ConfigDict(**examples({"filename": "contract.pdf", "media_type": "application/pdf"}), extra="forbid")
    filename: Annotated[str, Field(min_length=1, max_length=255)] = Field(
        description="Name of the file, at most 255 characters."
    )
    media_type: Name | None = Field(None, description="Expected media type. It must not contradict the bytes.")
    seconds: Seconds | None = Field(None, description="Time in seconds until the URL expires.")


class Upload(ResponseBody):
    model_config = examples(
        {
            "id": "01KA2V6M3T9Q4X7C5N1R8F2B6D",
            "method": "PUT",
            "url": "https://bucket.example/…?X-Amz-Signature=…",
            "token": "eyJ…",
            "expires_at": "2026-11-15T09:40:02Z",
        }
    )
    id: str
    method: Literal["PUT"]
    url: str = Field(description="PUT the bytes here, without further headers. A path is relative to this server.")
    token: str = Field(description="Pass it to `complete_upload`.")
    expires_at: datetime


class UploadToken(RequestBody):
    token: Annotated[str, Field(min_length=1, max_length=4_096)] = Field(
        description="The `token` that opening the upload returned."
    )


class NewLink(RequestBody):
    model_config = ConfigDict(**examples({"seconds": 300}), extra="forbid")
    seconds: Seconds | None = Field(None, description="Time in seconds until the link expires. Default: 300.")


class Link(ResponseBody):
    model_config = examples(
        {
            "url": "/api/conversations/01KA…/attachments/01KA…/content?ticket=eyJ…",
            "expires_at": "2026-11-15T09:40:02Z",
        }
    )
    url: str
    expires_at: datetime


@mirrors(model.FileQuote)
class Quote(ResponseBody):
    pass
