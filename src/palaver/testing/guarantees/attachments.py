"""Files."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from palaver.blobs import FolderBlobs
from palaver.errors import AttachmentNotFound, ConversationGone, InvalidInput
from palaver.model import File, Image, Scope
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

    async def delete(self, path: str) -> None:
        self.files.pop(path, None)


@guarantee
async def bytes_come_back(db: Database) -> None:
    """A file is kept byte by byte, with its name, type, size and hash."""
    data = bytes(range(256)) * 300
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
        await talk.append("user", "x", attachments=[file])
        async with refused(AttachmentNotFound, attachment=file.id):
            await talk.append("user", "again", attachments=[file])
        assert len(await talk.history()) == 1


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
        user, conversation, name = (await talk.attach(b"x", filename="a.tar.GZ")).path.split("/")
        assert (user, conversation) == ("ada", talk.id)
        assert name.endswith(".gz")
        assert len(name) == len(".gz") + 36


@guarantee
async def hostile_names_stay_in_the_folder(db: Database) -> None:
    """Whatever a file or a user is called, the file lies inside the folder and can be read again."""
    names = [
        "../../x",
        "/etc/passwd",
        "..",
        "a\\..\\b",
        "x.txt/../../y",
        ".hidden",
        "con",
        "n" * 500,
        "ü" * 250,
        "a\nb",
    ]
    with TemporaryDirectory() as top:
        folder = Path(top) / "inside" / "files"
        async with db.open(blobs=FolderBlobs(folder)) as store:
            for name in names:
                talk = await store.scoped(_user(name)).conversation("k")
                file = await talk.attach(b"data", filename=name)
                assert await talk.read_attachment(file) == b"data"
                assert (await talk.attachment(file)).filename == name
        everything = {path for path in Path(top).rglob("*") if path.is_file()}
        assert len(everything) == len(names)
        assert all(path.is_relative_to(folder) for path in everything)


def _user(name: str) -> Scope:
    return Scope("default", name)


@guarantee
async def what_is_no_file_is_refused(db: Database) -> None:
    """Text that is no data: URL, a broken one, and values that are no bytes are refused by name."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for data in ("notes.txt", "data:image/png;base64,@@@", "data:", 5, None):
            async with refused(InvalidInput, field="data"):
                await talk.attach(data)  # type: ignore[arg-type]
        assert (await store.stats()).attachments == 0
