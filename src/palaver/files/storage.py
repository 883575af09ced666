"""Storage of attachments: a folder, an S3-compatible bucket, or none. Paths of files in it."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from palaver.core.identity import file_hash
from palaver.errors import FilesNotConfigured, InvalidInput
from palaver.files.bucket import BucketBlobs
from palaver.files.folder import FolderBlobs, folder_problem
from palaver.ports.blobs import Blobs

MAX_FOLDER = 200  # characters; file systems allow 255 bytes
STAGED = "uploads"  # the folder, inside a conversation's, of unfinished uploads
BUCKET_OPTIONS = ("endpoint", "region", "virtual_hosted_style_request")
KEYS = "keys are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
_EXTENSION = re.compile(r"\.[a-z0-9]{1,10}$")


def blob_folder(user: str, conversation: str) -> str:
    """Return `{user_id}/{conversation_id}`, escaped so that a user id cannot leave the folder."""
    folder = quote(user, safe="@ ").replace(".", "%2E") if user.strip(".") != user else quote(user, safe="@ ")
    if len(folder) > MAX_FOLDER:
        folder = f"{folder[:100]}-{file_hash(user.encode())}"
    return f"{folder or '_'}/{conversation}"


def blob_path(user: str, conversation: str, filename: str) -> str:
    """Return a new path, `{user_id}/{conversation_id}/{uuid.ext}`."""
    extension = _EXTENSION.search(filename.lower())
    return f"{blob_folder(user, conversation)}/{uuid.uuid4()}{extension.group() if extension else ''}"


def open_blobs(place: Path | str) -> Blobs:
    """Open a folder, or `s3://bucket/prefix?endpoint=…&region=…` with the AWS keys of the environment."""
    if not isinstance(place, str) or "://" not in place:
        return FolderBlobs(Path(place))
    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidInput("files", "must be a folder, or s3://bucket/prefix")
    if "@" in parts.netloc:
        raise InvalidInput("files", f"must be a bucket without keys; {KEYS}")
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - set(BUCKET_OPTIONS):
        known = ", ".join(BUCKET_OPTIONS)
        raise InvalidInput("files", f"{sorted(unknown)[0]} is unknown; the options are {known}; {KEYS}")
    return BucketBlobs(parts.netloc, parts.path.strip("/"), options)


def storage_problem(place: Path | str) -> str | None:
    """Return why a folder cannot store files. None: no problem found, or it is a bucket, which is not asked."""
    if isinstance(place, str) and "://" in place:
        return None
    return folder_problem(Path(place))


class UnsetBlobs:
    """Stands in where no location for files was chosen: everything that needs one is refused."""

    async def put(self, path: str, data: bytes) -> None:
        raise FilesNotConfigured

    async def get(self, path: str) -> bytes:
        raise FilesNotConfigured

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        raise FilesNotConfigured

    async def size(self, path: str) -> int:
        raise FilesNotConfigured

    async def delete(self, path: str) -> None:
        raise FilesNotConfigured  # the file may be in a location that another process knows

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield nothing: this store knows of no files."""
        nothing: tuple[tuple[str, datetime], ...] = ()
        for one in nothing:
            yield one

    async def upload_url(self, path: str, seconds: int) -> str | None:
        raise FilesNotConfigured
