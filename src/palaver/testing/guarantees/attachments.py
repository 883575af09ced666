"""Files."""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from palaver.conversations.conversation import Conversation
from palaver.errors import AttachmentNotFound, ConversationGone, FileRefused, InvalidInput, TooLarge
from palaver.files.folder import FolderBlobs
from palaver.model import Attachment, File, Image, Scope, Turn
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


class MemoryBlobs:
    """The bytes of attachments in a dictionary, to look into."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def put(self, path: str, data: bytes) -> None:
        self.files[path] = data

    async def get(self, path: str) -> bytes:
        if path not in self.files:
            raise AttachmentNotFound(path)
        return self.files[path]

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return (await self.get(path))[start:end]

    async def size(self, path: str) -> int:
        return len(await self.get(path))

    async def delete(self, path: str) -> None:
        self.files.pop(path, None)

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        for path in list(self.files):
            yield path, datetime(2000, 1, 1, tzinfo=UTC)

    async def upload_url(self, path: str, seconds: int) -> str | None:
        return None


@guarantee
async def bytes_come_back(db: Database) -> None:
    """A file is kept byte by byte, with its name, type, size and hash."""
    data = b"%PDF-1.7\n" + bytes(range(256)) * 300
    async with db.open(user="ada") as store:
        talk = await store.conversation("k")
        file = await talk.attach(data, filename="Füße.PDF")
        turn = await talk.append("user", [File(attachment=file.id)], attachments=[file])
        assert (file.filename, file.media_type, file.bytes, file.owner) == (
            "Füße.PDF",
            "application/pdf",
            len(data),
            "ada",
        )
        assert file.sha256 == turn.attachments[0].sha256 == sha256(data).hexdigest()
    async with db.open(user="ada") as store:
        talk = await store.conversation("k")
        [turn] = await talk.history()
        assert await talk.read_attachment(turn.attachments[0]) == data
        assert await talk.read_attachment(file.id) == data
        assert await talk.read_attachment_range(file, 3, 9) == data[3:9]
        assert await talk.read_attachment_range(file, len(data) - 2, len(data) + 100) == data[-2:]
        assert await talk.attachments() == [await talk.attachment(file)]
        assert (await talk.attachment(file.id)).turn == turn.id


@guarantee
async def a_data_url_comes_back(db: Database) -> None:
    """An image that is given as a data: URL comes back as that URL, attached or inside a part."""
    async with db.open() as store:
        talk = await store.conversation("k")
        file = await talk.attach(URL)
        assert (file.media_type, await talk.read_attachment(file)) == ("image/png", PNG)
        assert await talk.data_url(file) == URL
        turn = await talk.append("user", [Image(url=URL)], attachments=[file])
        assert (await talk.turn(turn)).content == (Image(url=URL),)
        assert await talk.read_attachment(await talk.attach("data:,a%20b")) == b"a b"


@guarantee
async def a_path_is_read(db: Database) -> None:
    """A file on disk is attached by its path, under its own name."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "notes.txt"
        path.write_bytes(b"some notes")
        async with db.open() as store:
            talk = await store.conversation("k")
            file = await talk.attach(path)
            assert (file.filename, file.media_type) == ("notes.txt", "text/plain")
            assert await talk.read_attachment(file) == b"some notes"


@guarantee
async def a_file_belongs_to_one_turn(db: Database) -> None:
    """A file is taken by one turn of its own conversation, and by no other."""
    async with db.open() as store:
        talk, other = await store.conversation("k"), await store.conversation("other")
        file = await talk.attach(b"x")
        async with refused(AttachmentNotFound, attachment=file.id):
            await other.append("user", "mine", attachments=[file])
        async with refused(AttachmentNotFound, attachment=file.id):
            await other.read_attachment(file)
        first = await talk.append("user", "x", attachments=[file])
        async with refused(AttachmentNotFound, attachment=file.id, turn=first.id):
            await talk.append("user", "again", attachments=[file])
        assert len(await talk.history()) == 1


@guarantee
async def a_file_that_the_content_names_belongs_to_the_turn(db: Database) -> None:
    """Images and files that the content names belong to the turn like attachments; a file named twice is one."""
    async with db.open() as store:
        talk = await store.conversation("k")
        files = [await talk.attach(PNG, filename=f"{n}.png") for n in range(6)]
        first, second, third, fourth, fifth, sixth = files
        turn = await talk.append("user", ["see", _image(first), "and", File(attachment=second.id), _image(first)])
        assert await _taken(talk, turn) == [first.id, second.id]
        both = await talk.append("user", [_image(third), _image(fourth)], attachments=[fourth])
        assert await _taken(talk, both) == [fourth.id, third.id]
        edit = await talk.append("user", [_image(fifth)], replaces=both, discard_after=True)
        assert await _taken(talk, edit) == [fifth.id]
        [turn] = await talk.append_many([{"role": "user", "content": [_image(sixth)], "idempotency_key": "x"}])
        assert await _taken(talk, turn) == [sixth.id]
        assert await talk.append("user", [_image(sixth)], idempotency_key="x") == turn
        assert [hit.attachments for hit in await talk.history()][-1] == turn.attachments
        assert turn.attachments[0].sha256 == sha256(PNG).hexdigest()
        await talk.verify()


def _image(file: Attachment) -> dict[str, str]:
    return {"type": "image", "attachment": file.id}


async def _taken(talk: Conversation, turn: Turn) -> list[str]:
    """The files of a turn, as it and as their own rows have it."""
    assert {(await talk.attachment(one)).turn for one in turn.attachments} == {turn.id}
    assert (await talk.turn(turn)).attachments == turn.attachments
    return [one.id for one in turn.attachments]


@guarantee
async def a_content_names_only_files_that_are_free_and_here(db: Database) -> None:
    """A content cannot name a missing file, one of another conversation or turn, or more than ten files."""
    async with db.open() as store:
        talk, other = await store.conversation("k"), await store.conversation("other")
        file, foreign = await talk.attach(PNG), await other.attach(PNG)
        nowhere = Image(attachment="01K00000000000000000000000")
        for content in ([nowhere], [_image(file), nowhere], [_image(foreign)], [_image(file), _image(foreign)]):
            async with refused(AttachmentNotFound):
                await talk.append("user", content)  # type: ignore[arg-type]
            async with refused(AttachmentNotFound):
                await talk.append_many([{"role": "user", "content": "x"}, {"role": "user", "content": content}])  # type: ignore[typeddict-item]
        for wrong in ("", "x" * 1_000):
            async with refused(InvalidInput, field="content.attachment"):
                await talk.append("user", [Image(attachment=wrong)])
        same = {"role": "user", "content": [_image(file)]}
        async with refused(AttachmentNotFound, attachment=file.id):
            await talk.append_many([same, same])  # type: ignore[list-item]
        assert await talk.history() == []
        await talk.append("user", [_image(file)])
        async with refused(AttachmentNotFound, attachment=file.id):
            await talk.append("user", [_image(file)])
        files = [await talk.attach(b"x") for _ in range(11)]
        async with refused(TooLarge, field="attachments", limit=10):
            await talk.append("user", [File(attachment=one.id) for one in files[1:]], attachments=files[:1])
        assert len((await talk.append("user", [File(attachment=one.id) for one in files[1:]])).attachments) == 10


@guarantee
async def files_that_are_named_are_kept_and_go_with_their_turn(db: Database) -> None:
    """A file that a content names is not swept. Its row and bytes are deleted when its turn is forgotten."""
    blobs, clock = MemoryBlobs(), FakeClock()
    async with db.open(blobs=blobs, clock=clock) as store:
        talk = await store.conversation("k")
        file = await talk.attach(b"The zanzibar clause ends in March.", filename="contract.txt")
        turn = await talk.append("user", ["see", File(attachment=file.id)])
        clock.advance(2 * 86_400)
        assert (await store.sweep()).files == 0
        assert await talk.read_attachment(file) == b"The zanzibar clause ends in March."
        await store.settle()
        [hit] = await talk.recall("zanzibar clause", k=1)
        assert hit.quote is not None
        assert hit.quote.attachment == file.id
        await talk.forget(turn)
        assert blobs.files == {}
        async with refused(AttachmentNotFound, attachment=file.id):
            await talk.attachment(file)


@guarantee
async def files_go_with_their_turn(db: Database) -> None:
    """A file is deleted with its turn, with a reset and with its conversation, row and bytes."""
    blobs = MemoryBlobs()
    async with db.open(blobs=blobs) as store:
        talk = await store.conversation("k")
        kept = await talk.attach(b"kept")
        await talk.append("user", "x", attachments=[kept])
        file = await talk.attach(b"gone")
        turn = await talk.append("user", "x", attachments=[file])
        assert len(blobs.files) == 2
        await talk.forget(turn)
        assert list(blobs.files.values()) == [b"kept"]
        async with refused(AttachmentNotFound, attachment=file.id):
            await talk.read_attachment(file)
        await talk.attach(b"loose")
        await talk.reset()
        assert blobs.files == {}
        await talk.attach(b"last")
        await talk.forget()
        assert blobs.files == {}


@guarantee
async def a_refused_file_leaves_nothing(db: Database) -> None:
    """A file for a conversation that is gone is refused, and its bytes are not kept."""
    blobs = MemoryBlobs()
    async with db.open(blobs=blobs) as store:
        talk = await store.conversation("k")
        await talk.forget()
        async with refused(ConversationGone):
            await talk.attach(b"late")
        assert blobs.files == {}


@guarantee
async def the_path_names_user_and_conversation(db: Database) -> None:
    """Files lie at {user}/{conversation}/{uuid.ext}."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k")
        user, conversation, name = (await talk.attach(gzip.compress(b"x"), filename="a.tar.GZ")).path.split("/")
        assert (user, conversation) == ("ada", talk.id)
        assert name.endswith(".gz")
        assert len(name) == len(".gz") + 36


PATHS = ["../../x", "/etc/passwd", "..", "a\\..\\b", "x.txt/../../y", "C:\\x.txt"]
NAMES = [".hidden", "con", "n" * 500, "ü" * 250, 'a;b"c.txt', "日本語.txt", "100%.txt"]


@guarantee
async def hostile_names_stay_in_the_folder(db: Database) -> None:
    """A file lies inside its folder and can be read again, however the file or the user is named."""
    with TemporaryDirectory() as top:
        folder = Path(top) / "inside" / "files"
        async with db.open(blobs=FolderBlobs(folder)) as store:
            for name in (*NAMES, *PATHS, "a\nb"):
                talk = await store.scoped(_user(name)).conversation("k")
                filename = name if name in NAMES else "x"
                file = await talk.attach(b"data", filename=filename)
                assert await talk.read_attachment(file) == b"data"
                assert (await talk.attachment(file)).filename == filename
        everything = {path for path in Path(top).rglob("*") if path.is_file()}
        assert len(everything) == len(NAMES) + len(PATHS) + 1
        assert all(path.is_relative_to(folder) for path in everything)


@guarantee
async def a_path_is_no_name(db: Database) -> None:
    """A file name with a path, or that looks like another one, is refused."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for name in (*PATHS, "a\nb", "a\rb", "a\x7fb", "gnp.\u202etxt", " "):
            async with refused(InvalidInput, field="filename"):
                await talk.attach(b"data", filename=name)
        assert await talk.attachments() == []


def _user(name: str) -> Scope:
    return Scope("default", name)


@guarantee
async def what_is_no_file_is_refused(db: Database) -> None:
    """Text that is not a data: URL, a broken one, and values that are not bytes are refused by name."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for data in ("notes.txt", "data:image/png;base64,@@@", "data:", 5, None):
            async with refused(InvalidInput, field="data"):
                await talk.attach(data)  # type: ignore[arg-type]
        assert (await store.stats()).attachments == 0


@guarantee
async def a_file_is_what_its_bytes_are(db: Database) -> None:
    """The type is detected from the bytes; a name or type that contradicts them is refused, as is an unknown one."""
    async with db.open() as store:
        talk = await store.conversation("k")
        assert (await talk.attach(PNG)).media_type == "image/png"
        assert (await talk.attach(b"a,b", filename="t.csv")).media_type == "text/csv"
        for data, name, said in (
            (b"<html>", "x.png", None),
            (b"plain", None, "application/pdf"),
            (PNG, "x.txt", None),
            (PNG, None, "image/gif"),
            (b"MZ" + bytes(60), None, None),
            (b"\x7fELF" + bytes(60), "x", None),
            (b"plain", "x.exe", None),
        ):
            async with refused(FileRefused):
                await talk.attach(data, filename=name, media_type=said)
        assert len(await talk.attachments()) == 2


@guarantee
async def a_message_has_ten_files_at_most(db: Database) -> None:
    """Ten files go with a message; the eleventh is refused with the limit."""
    async with db.open() as store:
        talk = await store.conversation("k")
        files = [await talk.attach(b"x") for _ in range(11)]
        async with refused(TooLarge, field="attachments", limit=10):
            await talk.append("user", "all", attachments=files)
        assert len((await talk.append("user", "ten", attachments=files[:10])).attachments) == 10


@guarantee
async def the_words_of_files_are_found(db: Database) -> None:
    """Recall finds the text of a file and quotes the matching piece; the text is deleted when its turn is forgotten."""
    text = "\n".join(f"Paragraph {n} speaks of ordinary matters." for n in range(200))
    data = f"{text}\nThe zanzibar clause ends in March.\n{text}".encode()
    async with db.open() as store:
        talk = await store.conversation("k")
        file = await talk.attach(data, filename="contract.txt")
        turn = await talk.append("user", "", attachments=[file])
        await talk.append("user", "Something else was said.")
        await store.settle()
        [hit] = await talk.recall("zanzibar clause", k=1)
        assert hit.turn is not None
        assert hit.turn.id == turn.id
        assert hit.quote is not None
        assert (hit.quote.attachment, hit.quote.filename) == (file.id, "contract.txt")
        assert "zanzibar clause ends in March" in hit.quote.text
        assert len(hit.quote.text) < 2_000
        context = await talk.build_context(token_budget=2_000, message="When does the zanzibar clause end?")
        assert "zanzibar clause ends in March" in context.text
        assert (await talk.attachment_text(file)).text == data.decode()
        assert [found.conversation.id for found in await store.search("zanzibar")] == [talk.id]
        await talk.forget(turn)
        assert not any(hit.quote for hit in await talk.recall("zanzibar clause"))
        assert await store.search("zanzibar") == []
        await talk.verify()


@guarantee
async def two_files_of_a_turn_are_told_apart(db: Database) -> None:
    """Each file of a turn has its own text."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.attach(b"Alpha speaks of zanzibar.", filename="a.txt")
        second = await talk.attach(b"Beta speaks of madagascar.", filename="b.txt")
        await talk.append("user", "two files", attachments=[first, second])
        await store.settle()
        for word, file in (("zanzibar", first), ("madagascar", second)):
            hit = (await talk.recall(word, k=1))[0]
            assert hit.quote is not None
            assert hit.quote.attachment == file.id
        assert (await talk.attachment_text(second)).text == "Beta speaks of madagascar."


@guarantee
async def what_cannot_be_read_says_why(db: Database) -> None:
    """A file without text is not an error, and the reason is reported."""
    async with db.open() as store:
        talk = await store.conversation("k")
        picture, broken = await talk.attach(PNG), await talk.attach(b"%PDF-1.7\n\x00 nothing")
        assert (await talk.attachment_text(picture)).problem == "holds no text"
        await talk.append("user", "look", attachments=[picture, broken])
        await store.settle()
        assert (await talk.attachment_text(picture)).problem == "holds no text"
        assert (await talk.attachment_text(broken)).text == ""
        assert (await talk.attachment_text(broken)).problem


@guarantee
async def an_upload_is_looked_at_when_it_is_complete(db: Database) -> None:
    """An uploaded file is measured, its type detected, and it is stored under its own path; a retry finds it."""
    blobs = MemoryBlobs()
    async with db.open(user="ada", blobs=blobs) as store:
        talk, other = await store.conversation("k"), await store.conversation("other")
        upload = await talk.open_upload("cat.png")
        async with refused(AttachmentNotFound):
            await talk.complete_upload(upload)
        await talk.put_upload(upload, PNG)
        async with refused(AttachmentNotFound):
            await other.complete_upload(upload)
        file = await talk.complete_upload(upload)
        assert (file.media_type, file.bytes, file.sha256) == ("image/png", len(PNG), sha256(PNG).hexdigest())
        assert await talk.complete_upload(upload) == file
        await talk.put_upload(upload, b"something else, later")
        assert await talk.read_attachment(file) == PNG
        liar = await talk.open_upload("cat.png")
        await talk.put_upload(liar, b"no cat")
        async with refused(FileRefused):
            await talk.complete_upload(liar)
        assert [path for path in blobs.files if liar.path in path] == []


class _Together(MemoryBlobs):
    """Each reader waits until all the others read."""

    def __init__(self, readers: int) -> None:
        super().__init__()
        self.barrier = asyncio.Barrier(readers)

    async def get(self, path: str) -> bytes:
        data = await super().get(path)
        await self.barrier.wait()
        return data


@guarantee
async def an_upload_that_is_completed_twice_at_once_is_one_file(db: Database) -> None:
    """A client that retries before the first response gets the same one, and its bytes are stored once."""
    blobs = _Together(3)
    async with db.open(blobs=blobs) as store:
        talk = await store.conversation("k")
        upload = await talk.open_upload("notes.txt")
        await talk.put_upload(upload, b"notes")
        first, *others = await asyncio.gather(*(talk.complete_upload(upload) for _ in range(3)))
        assert others == [first, first]
        assert list(blobs.files) == [first.path]
        assert len(await talk.attachments()) == len(await talk.audit(kinds=["attach"])) == 1


@guarantee
async def orphans_are_swept(db: Database) -> None:
    """A sweep deletes files without a turn after a day, and bytes that no row names, and nothing else."""
    blobs, clock = MemoryBlobs(), FakeClock()
    async with db.open(blobs=blobs, clock=clock) as store:
        talk = await store.conversation("k")
        kept = await talk.attach(b"kept")
        await talk.append("user", "x", attachments=[kept])
        loose = await talk.attach(b"loose")
        upload = await talk.open_upload("never.txt")
        await talk.put_upload(upload, b"never completed")
        blobs.files["somebody/else/file"] = b"of another program"
        assert (await store.sweep()).files == 1
        assert sorted(blobs.files.values()) == [b"kept", b"loose", b"of another program"]
        clock.advance(2 * 86_400)
        assert (await store.sweep()).files == 1
        assert sorted(blobs.files.values()) == [b"kept", b"of another program"]
        async with refused(AttachmentNotFound):
            await talk.attachment(loose)
        await talk.verify()


@guarantee
async def what_a_tool_had_to_say_in_full_is_read_when_asked_for(db: Database) -> None:
    """The full text of a long result can be read, but recall does not search it."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "look", "arguments": {}}])
        file = await talk.attach(b"zanzibar in full", filename="look.txt")
        await talk.append("tool", "", tool_results=[{"id": "c1", "content": "in short"}], attachments=[file])
        await store.settle()
        assert not any(hit.quote for hit in await talk.recall("zanzibar"))
        assert (await talk.attachment_text(file)).text == "zanzibar in full"
