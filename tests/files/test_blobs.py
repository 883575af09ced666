"""Where the bytes lie: in a folder, and in a bucket that speaks S3 (moto's server, on loopback)."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from errno import ENOSPC
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import palaver
from palaver.conversations.internals import components_of
from palaver.core import validation
from palaver.errors import AttachmentNotFound, EngineError, EngineUnavailable, FileRefused, InvalidInput, TooLarge
from palaver.files.folder import FolderBlobs, translate_errors
from palaver.files.storage import open_blobs, storage_problem
from palaver.ports.blobs import Blobs
from palaver.testing.fakes import FakeClock
from tests.files.bucket import PATIENCE, bucket, endpoint  # noqa: F401
from tests.files.samples import TAKEN

PNG = TAKEN["png"][1]


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.costly)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "files") if request.param == "folder" else request.getfixturevalue("bucket")


async def names(blobs: Blobs) -> list[str]:
    return sorted([path async for path, _ in blobs.listed()])


async def test_what_is_put_comes_back_whole_and_in_parts_until_it_is_deleted(place: str) -> None:
    blobs = open_blobs(place)
    assert await names(blobs) == []
    await blobs.put("ada/talk/x.bin", b"0123456789")
    assert await blobs.get("ada/talk/x.bin") == b"0123456789"
    assert await blobs.get_range("ada/talk/x.bin", 2, 5) == b"234"
    assert await blobs.size("ada/talk/x.bin") == 10
    assert await names(blobs) == ["ada/talk/x.bin"]
    await blobs.delete("ada/talk/x.bin")
    await blobs.delete("ada/talk/x.bin")
    for read in (blobs.get, blobs.size):
        with pytest.raises(AttachmentNotFound):
            await read("ada/talk/x.bin")
    assert await names(blobs) == []


@pytest.mark.costly
async def test_a_versioned_bucket_gives_deleted_files_back_when_the_delete_markers_go(bucket: str) -> None:  # noqa: F811
    """The way that docs/how-to/backups.md describes: a database of an earlier moment needs the files of that moment."""
    import boto3

    client = boto3.client("s3", endpoint_url=httpx.QueryParams(urlsplit(bucket).query)["endpoint"])
    prefix = urlsplit(bucket).path[1:] + "/"
    client.put_bucket_versioning(Bucket="files", VersioningConfiguration={"Status": "Enabled"})
    try:
        blobs = open_blobs(bucket)
        await blobs.put("ada/talk/x.bin", b"0123456789")
        await blobs.delete("ada/talk/x.bin")
        assert await names(blobs) == []
        for marker in client.list_object_versions(Bucket="files", Prefix=prefix)["DeleteMarkers"]:
            assert marker["IsLatest"]
            client.delete_object(Bucket="files", Key=marker["Key"], VersionId=marker["VersionId"])
        assert await blobs.get("ada/talk/x.bin") == b"0123456789"
    finally:
        client.put_bucket_versioning(Bucket="files", VersioningConfiguration={"Status": "Suspended"})


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a//x"])
async def test_no_path_leads_out(place: str, path: str) -> None:
    blobs = open_blobs(place)
    for act in (blobs.get(path), blobs.put(path, b"x"), blobs.delete(path)):
        with pytest.raises(InvalidInput):
            await act


@pytest.mark.parametrize("place", ["gs://bucket", "s3://", "s3://bucket?secret=x"])
def test_a_place_that_nobody_knows_is_refused(place: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        open_blobs(place)
    assert refusal.value.field == "files"


@pytest.mark.costly
async def test_a_bucket_that_is_not_there_or_out_of_reach_is_told_without_its_address(bucket: str) -> None:  # noqa: F811
    with pytest.raises(EngineError) as problem:
        await open_blobs(bucket.replace("s3://files", "s3://nowhere")).put("a/b/c", b"x")
    assert "127.0.0.1" not in str(problem.value)
    with pytest.raises(EngineUnavailable) as problem:
        await open_blobs("s3://files?endpoint=http://127.0.0.1:9&region=x").get("a/b/c")
    assert "127.0.0.1" not in str(problem.value)


def test_a_full_disk_is_reported_as_one() -> None:
    with pytest.raises(palaver.DatabaseFull, match="no space left"), translate_errors("a/b", written=True):
        raise OSError(ENOSPC, "No space left")


async def test_writers_and_deleters_of_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The last file of a folder takes the folder with it, while others are about to write into it."""
    blobs = FolderBlobs(tmp_path)

    async def write_and_delete(name: str) -> None:
        for _ in range(20):
            await blobs.put(f"ada/talk/{name}", b"x")
            await blobs.delete(f"ada/talk/{name}")

    await asyncio.gather(*(write_and_delete(name) for name in "abcd"))
    assert list(tmp_path.iterdir()) == []


async def test_a_path_through_a_file_and_an_empty_range_are_refused(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    await blobs.put("ada/x", b"0123456789")
    with pytest.raises(EngineUnavailable):
        await blobs.put("ada/x/y", b"z")
    with pytest.raises(AttachmentNotFound):
        await blobs.get("ada/x/y")
    with pytest.raises(InvalidInput, match="range"):
        await blobs.get_range("ada/x", 5, 5)
    assert await blobs.get_range("ada/x", 8, 20) == b"89"


def test_a_bucket_without_its_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)  # as if it were not installed
    with pytest.raises(palaver.MissingExtra, match=r'pip install "palaver\[s3\]"'):
        open_blobs("s3://files")


async def test_what_a_killed_writer_left_half_written_is_removed(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    await blobs.put("ada/talk/x", b"whole")
    old, new = tmp_path / "ada/talk/y#1", tmp_path / "ada/talk/z#1"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert await names(blobs) == ["ada/talk/x"]
    assert not old.exists()
    assert new.exists(), "somebody may be writing it"


# ---- the whole way -------------------------------------------------------------------------------------------------


async def test_files_live_in_the_place_that_was_named_and_go_with_their_turn(place: str, tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/c.db", user="ada", files=place, worker=False) as store:
        talk = await store.conversation("k")
        file = await talk.attach(PNG, filename="cat.png")
        turn = await talk.append("user", "look", attachments=[file])
        assert await talk.read_attachment(file) == PNG
        assert file.path.startswith(f"ada/{talk.id}/")
        assert await names(components_of(store).blobs) == [file.path]
        await talk.verify()
        await talk.forget(turn)
        assert await names(components_of(store).blobs) == []


@pytest.mark.costly
async def test_a_file_goes_straight_into_the_bucket_and_is_looked_at_afterwards(bucket: str, tmp_path: Path) -> None:  # noqa: F811
    async with palaver.open(f"sqlite:///{tmp_path}/c.db", user="ada", files=bucket, worker=False) as store:
        talk = await store.conversation("k")
        upload = await talk.open_upload("cat.png", seconds=60)
        assert upload.url is not None
        assert "X-Amz-Expires=60" in upload.url
        async with httpx.AsyncClient(timeout=PATIENCE) as browser:
            (await browser.put(upload.url, content=PNG)).raise_for_status()
            file = await talk.complete_upload(upload)
            assert (file.bytes, file.media_type) == (len(PNG), "image/png")
            # A client that still has the address cannot change what was checked.
            (await browser.put(upload.url, content=b"another cat")).raise_for_status()
            assert await talk.read_attachment(file) == PNG
            liar = await talk.open_upload("cat.png")
            assert liar.url is not None
            (await browser.put(liar.url, content=b"no cat at all")).raise_for_status()
        with pytest.raises(FileRefused):
            await talk.complete_upload(liar)
        assert await names(components_of(store).blobs) == sorted([file.path, upload.path])


async def test_an_upload_that_is_too_large_is_refused_before_it_is_read(place: str, tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/c.db", user="ada", files=place, worker=False) as store:
        talk = await store.conversation("k")
        upload = await talk.open_upload("a.txt")
        await components_of(store).blobs.put(upload.path, bytes(validation.MAX_FILE + 1))
        with pytest.raises(TooLarge) as refusal:
            await talk.complete_upload(upload)
        assert (refusal.value.field, refusal.value.limit) == ("data", validation.MAX_FILE)
        assert await names(components_of(store).blobs) == []


async def test_a_sweep_removes_what_nobody_names_and_nothing_of_anybody_elses(place: str, tmp_path: Path) -> None:
    clock = FakeClock()
    async with palaver.open(f"sqlite:///{tmp_path}/c.db", user="ada", files=place, worker=False, clock=clock) as store:
        talk = await store.conversation("k")
        file = await talk.attach(PNG)
        await talk.append("user", "look", attachments=[file])
        await talk.put_upload(await talk.open_upload("never.txt"), b"never completed")
        await components_of(store).blobs.put(f"ada/{'0' * 26}/x", b"of another database")
        clock.set(datetime.now(UTC))  # a bucket has a clock of its own
        assert (await store.sweep()).files == 0
        clock.advance(3 * 86_400)
        assert (await store.sweep()).files == 1
        assert await names(components_of(store).blobs) == sorted([file.path, f"ada/{'0' * 26}/x"])


@pytest.mark.parametrize("place", ["s3://AKIA:hunter2@files", "s3://files?secret_access_key=hunter2"])
def test_keys_in_the_address_of_a_bucket_are_refused_without_being_shown(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="AWS_SECRET_ACCESS_KEY in the environment") as refused:
        open_blobs(place)
    assert "hunter2" not in str(refused.value)


async def test_a_folder_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EngineUnavailable, match=r"check files= \(PALAVER_FILES\)"):
        await open_blobs(tmp_path / "file").put("a/b/c", b"x")


def test_a_folder_that_cannot_store_files_is_recognised_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage_problem(tmp_path / "new" / "files") is None
    assert storage_problem("s3://bucket/files") is None
    (tmp_path / "file").write_text("x")
    assert storage_problem(str(tmp_path / "file" / "files")) == f"{tmp_path}/file is not a folder"
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert storage_problem(tmp_path) == f"this user may not write to {tmp_path}"
    missing = f"{tmp_path}/new/files does not exist, and this user may not write to {tmp_path}"
    assert storage_problem(tmp_path / "new" / "files") == missing
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
