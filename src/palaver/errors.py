"""The errors of Palaver, as one tree.

    PalaverError
    ├── InvalidInput (ValueError)      an invalid argument; has the field, and the limit if there is one
    │   ├── TooLarge
    │   ├── NotRedacted                a text with a secret bypassed the redactor of its conversation
    │   ├── FileRefused                a file of an unsupported or falsely declared type, or an archive bomb
    │   └── BudgetTooSmall             the required parts of a context exceed the budget; has both numbers
    ├── NotFound (LookupError)         does not exist, or is not visible, such as ids of other tenants
    │   ├── ConversationNotFound
    │   ├── TurnNotFound
    │   ├── AttachmentNotFound
    │   ├── SubjectNotFound
    │   └── Gone                       permanently deleted
    │       ├── ConversationGone
    │       └── TurnGone
    ├── Conflict                       another writer changed it first; read it again, then decide
    │   ├── AppendConflict             `expected_seq` is not the next sequence number
    │   ├── UpdateConflict             the conversation has changed since it was read
    │   ├── SettingsConflict           the conversation already exists, with different settings
    │   ├── IdempotencyConflict        the key was used before, with different content
    │   ├── TurnSuperseded             the turn to replace is no longer in the active branch
    │   ├── StreamSealed               the stream was committed, aborted or taken over
    │   ├── StreamMoved                text arrived during the commit; commit again
    │   ├── ConversationBusy           it is answering another question, or it is being reset
    │   │   └── QueueTimeout           a question waited too long for its turn; the question is stored
    │   └── AlreadyImported            the conversation already exists, with a different history
    ├── PermissionDenied               the scope lacks a right
    │   └── TokenRefused               the token is missing, expired or invalid here
    ├── BudgetExceeded                 a budget is used up; has its owner, and the seconds until it is renewed
    │   ├── CostBudgetExceeded         a budget of money
    │   │   └── PriceUnknown           a budget of money applies, and the model has no price
    │   └── StorageBudgetExceeded      a budget of bytes or conversations; only deletion frees space
    ├── VerificationFailed             the log and the rows disagree; has the first bad row
    ├── ScrubPending                   deleted, but old bytes remain on disk for now
    ├── MissingExtra (ImportError)     an optional dependency is missing; has the extra to install
    ├── ModelError                     a call to a model failed; has the model's name, never its text
    │   ├── ModelUnavailable           unreachable, overloaded or failing: retry
    │   │   └── RateLimited            `retry_after` has the seconds, if the service gave them
    │   ├── ModelRefused               the service refused the request: check the key, the name, the settings
    │   │   ├── ContextTooLong         more tokens than the model can read
    │   │   └── PreviousResponseMissing  the service no longer has the answer to continue
    │   └── BadModelResponse           the response is incomplete or malformed
    ├── WrongEventLoop (RuntimeError)  the store was opened in another event loop, or asyncio is not running
    ├── StoreClosed
    └── EngineError                    the database failed; the message never quotes data
        ├── EngineUnavailable          busy, locked or unreachable: retry
        ├── SchemaMissing              no schema, or one that is too old: run `palaver migrate`
        ├── DatabaseTooNew             the schema is newer than this version of Palaver
        ├── DatabaseCorrupt
        │   └── RowUnreadable          one row, named in the error; the others can still be read
        ├── DatabaseReadOnly
        ├── DatabaseFull
        ├── FilesNotConfigured         a server database has no default location for files: set one
        └── NotADatabase               the file is not an SQLite database

Errors have data as attributes, never the content of a turn, a key or a token.
"""

from __future__ import annotations


class PalaverError(Exception):
    """The base class of Palaver's errors."""

    @property
    def http_status(self) -> int:
        """The HTTP status that the server sends for this error."""
        return _http(self)[0]

    def to_problem(self) -> dict[str, object]:
        """Return the error as problem details (RFC 9457), as the server sends it: no content, no path, no secret."""
        status, slug = _http(self)
        body: dict[str, object] = {
            "type": PROBLEM_TYPE + slug,
            "title": TITLES[status],
            "status": status,
            "error": type(self).__name__,
        }
        if isinstance(self, EngineError):  # its text may contain a path of the machine
            return {**body, "detail": summary_of(type(self))}
        fields = {name: getattr(self, name) for name in SENT if getattr(self, name, None) is not None}
        if isinstance(self, StreamSealed):
            fields["turn_status"] = self.status
        # `detail` has no hints for Python programs.
        return {**body, "detail": getattr(self, "detail", None) or str(self), **fields}


class InvalidInput(PalaverError, ValueError):
    """An argument is invalid. `field` is its name; `problem` describes what is wrong.

    Way out: Correct the argument named in `field`.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


class TooLarge(InvalidInput):
    """A value is over its limit. `size` and `limit` are in `unit`.

    Way out: Send at most `limit`; your value had `size`.
    """

    def __init__(self, field: str, *, size: int, limit: int, unit: str) -> None:
        self.size, self.limit, self.unit = size, limit, unit
        super().__init__(field, f"{size:,} {unit} is over the limit of {limit:,} {unit}")


class NotRedacted(InvalidInput):
    """A text for a redacted conversation contains a secret or personal data of this `kind`, and was not redacted.

    Way out: Write through the library or the server, which redact. Only SQL that bypasses them causes this error.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        problem = f"holds {kind!r}, and this conversation is redacted"
        super().__init__("content", f"{problem}: write through the library or the server, which replace it")


class FileRefused(InvalidInput):
    """A file is refused. `media_type` is the type of its bytes, or the declared type; None if neither is known.

    Way out: Send a file of an allowed type, and declare the type that it has.
    """

    def __init__(self, field: str, problem: str, *, media_type: str | None) -> None:
        self.media_type = media_type
        super().__init__(field, problem)


class BudgetTooSmall(InvalidInput):
    """The required parts of a context exceed its budget. `needed` and `budget` are in `unit`.

    Way out: Set a budget of `needed` or more, or send a shorter message.
    """

    def __init__(self, what: str, *, needed: int, budget: int, unit: str) -> None:
        self.needed, self.budget, self.unit = needed, budget, unit
        super().__init__("budget", f"{what} needs {needed:,} {unit}, and the budget is {budget:,}")


class NotFound(PalaverError, LookupError):
    """The object does not exist, or the scope cannot see it.

    Way out: Check the id, and the tenant and user of the store.
    """


class ConversationNotFound(NotFound):
    """No conversation with this id or key is visible to the scope.

    Way out: Check tenant, user and owner. `store.conversation(key)` creates a conversation.
    """

    def __init__(self, conversation: str, hint: str = "") -> None:
        self.conversation = conversation
        super().__init__(f"no conversation {conversation!r}" + (f": {hint}" if hint else ""))


class TurnNotFound(NotFound):
    """The conversation has no turn with this id.

    Way out: Use the id of a turn in this conversation.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"no turn {turn!r} in this conversation")


class AttachmentNotFound(NotFound):
    """The conversation has no attachment with this id, or `turn` is the turn that already has it.

    Way out: Attach the file again: it was swept, or it belongs to another turn or conversation.
    """

    def __init__(self, attachment: str, turn: str | None = None) -> None:
        self.attachment, self.turn = attachment, turn
        if turn is None:
            super().__init__(f"no attachment {attachment!r} in this conversation")
        else:
            super().__init__(f"attachment {attachment!r} already belongs to turn {turn!r}: attach the file again")


class SubjectNotFound(NotFound):
    """No subject of this kind and name is visible to the scope, or the subject has no item with this id.

    Way out: Check `kind`, `subject` and `item`.
    """

    def __init__(self, kind: str, subject: str, item: str | None = None) -> None:
        self.kind, self.subject, self.item = kind, subject, item
        super().__init__(f"no {kind} {subject!r}" if item is None else f"no item {item!r} of {kind} {subject!r}")


class Gone(NotFound):
    """The object was permanently deleted. Over HTTP the status is 410, not 404.

    Way out: It cannot be restored.
    """


class ConversationGone(Gone):
    """The conversation was deleted.

    Way out: `store.conversation(key)` creates a new one.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(f"conversation {conversation!r} was permanently deleted; a new one may have the same key")


class TurnGone(Gone):
    """The turn was forgotten.

    Way out: To store the message again, send it with a new idempotency key.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"turn {turn!r} was forgotten and cannot be restored")


class Conflict(PalaverError):
    """Another writer changed the object first. Nothing was written.

    Way out: Read the object again, then decide.
    """


class AppendConflict(Conflict):
    """`expected_seq` is not the next sequence number: another turn was stored first.

    Way out: Read the turns from number `expected` on, then decide.
    """

    def __init__(self, *, expected: int, found: int) -> None:
        self.expected, self.found = expected, found
        super().__init__(
            f"the conversation has changed: expected the next seq to be {expected}, found {found}; "
            "read it again, then decide"
        )


class UpdateConflict(Conflict):
    """The conversation has changed since it was read. `expected` and `found` are times in microseconds since 1970.

    Way out: Call `refresh`, then decide.
    """

    def __init__(self, *, expected: int, found: int) -> None:
        self.expected, self.found = expected, found
        super().__init__("the conversation has changed since it was read; read it again, then decide")


class SettingsConflict(Conflict):
    """The conversation already exists, and one of the given settings has a different value there. `field` is its name.

    Way out: Call `update(settings=…)`, or open the conversation without settings.
    """

    def __init__(self, conversation: str, field: str) -> None:
        self.conversation, self.field = conversation, field
        super().__init__(
            f"conversation {conversation!r} already exists, with another {field}; "
            "to change it, use update(settings=…); to keep it, open the conversation without settings"
        )


class IdempotencyConflict(Conflict):
    """The `idempotency_key` was used before, for `turn`, with different content.

    Way out: Use a new key for another message.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"this idempotency_key was used for turn {turn!r}, with different content")


class TurnSuperseded(Conflict):
    """The turn to replace is no longer in the active branch. `by` is the turn that took its place, if there is one.

    Way out: Replace the turn `by` instead.
    """

    def __init__(self, turn: str, *, by: str | None) -> None:
        self.turn, self.by = turn, by
        super().__init__(f"turn {turn!r} is no longer in the active branch" + (f"; {by!r} replaced it" if by else ""))


class StreamSealed(Conflict):
    """The streamed turn has already ended. `status` is `complete` or `aborted`.

    Way out: Open another stream.
    """

    def __init__(self, turn: str, status: str) -> None:
        self.turn, self.status = turn, status
        super().__init__(f"the stream of turn {turn!r} is sealed ({status}); nothing more can be written to it")


class StreamMoved(Conflict):
    """Another chunk of a streamed turn arrived during its commit, so the commit did not include all of the text.

    Way out: Commit again.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"the stream of turn {turn!r} has changed: read it again, then commit")


class ConversationBusy(Conflict):
    """The conversation is answering another question, and its settings allow only one at a time.

    This error is also raised while a long conversation is being reset, which takes a moment.

    Way out: Ask again after the current answer, or set `settings={"simultaneous": …}` to `queue` or `parallel`.
    """

    def __init__(self, conversation: str, problem: str = "") -> None:
        self.conversation = conversation
        super().__init__(
            problem or "another question of this conversation is being answered; ask again after that answer"
        )


class QueueTimeout(ConversationBusy):
    """A question waited `waited` seconds, and `ahead` answers were still ahead of it. The question is stored.

    Way out: Call `generate(question=…)` later.
    """

    def __init__(self, conversation: str, *, waited: float, ahead: int) -> None:
        self.waited, self.ahead = waited, ahead
        answers = "1 answer" if ahead == 1 else f"{ahead} answers"
        super().__init__(conversation, f"waited {waited:g} s with {answers} still ahead; ask again later")


class AlreadyImported(Conflict):
    """The conversation to import already exists, with a different history.

    Way out: Import into another database or tenant.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(f"conversation {conversation!r} already exists, with a different history")


NEEDED_FOR = {
    "read": ", which is required for reading",
    "write": ", which is required for storing and changing data",
    "generate": ", which is required for calling a model",
    "system": ", which is required for system messages and instructions",
    "act_for": ", which is required for writing under another person's name",
    "admin": ", which is required for the owner's operations and for maintenance",
}


class PermissionDenied(PalaverError):
    """The scope lacks the right named in `right`. `detail` describes how a caller of the server gets it.

    Way out: Use a scope or a key that has this right.
    """

    def __init__(self, right: str) -> None:
        self.right = right
        self.detail = (
            f"this caller lacks the right {right!r}{NEEDED_FOR.get(right, '')}. A key gets it with "
            f"`palaver keys create --right {right}`, a token in app_metadata.palaver_rights"
        )
        super().__init__(f"{self.detail}, a scope with scope.with_rights({right!r})")


class TokenRefused(PermissionDenied):
    """The token is missing, expired or invalid. Nothing was read or written.

    Way out: Sign in again, then retry.
    """

    def __init__(self, problem: str) -> None:
        self.right, self.problem = "signed in", problem
        PalaverError.__init__(self, problem)


class BudgetExceeded(PalaverError):
    """A budget does not allow the call. Nothing was sent to a model, and nothing was stored.

    `kind` is the owner of the budget: `tenant`, `user` or `key`. `measure` and `period` are what it limits.
    `retry_after` is the number of seconds until the period ends.

    Way out: Wait `retry_after` seconds, or raise the budget.
    """

    def __init__(
        self, kind: str, measure: str, period: str, *, limit: float, used: float, retry_after: float | None = None
    ) -> None:
        self.kind, self.measure, self.period = kind, measure, period
        self.limit, self.used, self.retry_after = limit, used, retry_after
        what = measure if period == "total" else f"{measure} per {period}"
        super().__init__(f"{budget_of(kind)} allows {limit:,g} {what}, and {used:,g} are used or reserved")


class CostBudgetExceeded(BudgetExceeded):
    """A budget of money does not allow the call.

    Way out: Wait for the next period, or raise the budget.
    """


class PriceUnknown(CostBudgetExceeded):
    """A budget of money applies, and `model` has no price, so the cost of a call cannot be computed.

    Way out: Set the `price` of the model in `models=`.
    """

    def __init__(self, kind: str, model: str) -> None:
        self.model = model
        self.kind, self.measure, self.period = kind, "dollars", "total"
        self.limit, self.used, self.retry_after = 0.0, 0.0, None
        problem = f"{budget_of(kind)} limits money, and the model {model!r} has no price"
        PalaverError.__init__(self, f"{problem}: set `price` of that model in `models`")


class StorageBudgetExceeded(BudgetExceeded):
    """A budget of bytes or conversations is used up. Nothing was stored.

    Way out: Delete something, or raise the budget.
    """


def budget_of(kind: str) -> str:
    """Return the name of a budget, for messages."""
    return {"tenant": "the tenant's budget", "user": "the user's budget", "key": "this key's budget"}[kind]


class VerificationFailed(PalaverError):
    """The log and the rows of a conversation disagree. `row` is the first bad row.

    Way out: The row was changed outside Palaver: compare it with a backup.
    """

    def __init__(self, conversation: str, row: str, problem: str) -> None:
        self.conversation, self.row, self.problem = conversation, row, problem
        super().__init__(f"conversation {conversation}, {row}: {problem}")


class ScrubPending(PalaverError):
    """The rows are deleted, but old bytes remain in the WAL until another reader closes its transaction.

    If the database failed to remove them, `cause` has the reason, such as "the disk is full".

    Way out: None needed: the bytes are removed when the reader ends or, after a `cause`, when the file can be written.
    """

    def __init__(self, cause: str | None = None) -> None:
        self.cause = cause
        why, until = (cause, "it can be written") if cause else ("another process is reading", "it has finished")
        super().__init__(
            f"deleted; {why}, so old bytes stay in the WAL for now. "
            f"They are removed as soon as {until}: by this store, or by the next one that opens the file."
        )


class MissingExtra(PalaverError, ImportError):
    """An optional dependency is not installed. `extra` is the extra that contains it.

    Way out: Run the command in the message: `pip install "palaver[…]"`.
    """

    def __init__(self, extra: str, what: str, *, also: tuple[str, ...] = ()) -> None:
        self.extra = extra
        wanted = " ".join(f'"{one}"' for one in (f"palaver[{extra}]", *also))
        super().__init__(f"{what} needs an optional dependency: pip install {wanted}")


class ModelError(PalaverError):
    """A call to a model failed. `status` is the provider's HTTP status, if any. The message never quotes the provider.

    Way out: Look up `status` in the provider's documentation.
    """

    def __init__(self, model: str, problem: str, *, status: int | None = None) -> None:
        self.model, self.problem, self.status = model, problem, status
        super().__init__(f"{model} {problem}" + (f" (status {status})" if status is not None else ""))


class ModelUnavailable(ModelError):
    """The service is unreachable, overloaded or failing.

    Way out: Try again later. Background work is retried automatically.
    """


class RateLimited(ModelUnavailable):
    """The service limits the rate of requests. `retry_after` is in seconds; None if the service gave no time.

    Way out: Try again after `retry_after` seconds, or later if it is None.
    """

    def __init__(self, model: str, *, retry_after: float | None = None, status: int | None = 429) -> None:
        self.retry_after = retry_after
        when = "" if retry_after is None else f", for {retry_after:g} s"
        super().__init__(model, f"accepts no more requests now{when}", status=status)


class ModelRefused(ModelError):
    """The service refused the request, and would refuse a retry as well.

    Way out: Check the key, the model's name and the settings.
    """


class ContextTooLong(ModelRefused):
    """The prompt has more tokens than the model accepts.

    Way out: Use a smaller `token_budget`, or set `window` in `models=`.
    """

    def __init__(self, model: str, *, status: int | None = None) -> None:
        super().__init__(model, "does not accept a prompt of this length: use a smaller token_budget", status=status)


class PreviousResponseMissing(ModelRefused):
    """The service no longer has the response to continue.

    Way out: None needed: `generate` repeats the request with the whole context.
    """

    def __init__(self, model: str, *, status: int | None = None) -> None:
        super().__init__(model, "no longer has the answer to continue", status=status)


class BadModelResponse(ModelError):
    """The response is incomplete or malformed. The text received so far is kept as an aborted turn.

    Way out: Ask again.
    """


class WrongEventLoop(PalaverError, RuntimeError):
    """The store belongs to another event loop, or no asyncio loop is running here.

    Way out: Open one store per event loop. Without asyncio, use `palaver.sync`.
    """


class StoreClosed(PalaverError):
    """The store is closed, or this process is a fork of the process that opened it.

    Way out: Use the store inside the block of `palaver.open`, or before `aclose()`. After a fork, open a new store.
    """

    def __init__(self) -> None:
        super().__init__("the store is closed; open the database again")


class EngineError(PalaverError):
    """The database failed. The message never quotes data. `sqlstate` is the error code of Postgres, if there is one.

    Way out: Look for the cause in the log of the database server.
    """

    sqlstate: str | None = None


class EngineUnavailable(EngineError):
    """The database, or the storage of files, is busy, locked or unreachable. The call may be retried.

    If `connection_lost` is true, the call may or may not have been carried out.

    Way out: Try again. Repeat an append with the same idempotency key.
    """

    connection_lost: bool = False


class SchemaMissing(EngineError):
    """The database has no Palaver schema, or one that is too old for this version.

    Way out: Run `palaver migrate`, or open the store with `migrate_url=`.
    """


class DatabaseTooNew(EngineError):
    """The database has schema version `found`. This version of Palaver supports versions up to `known`.

    Way out: Upgrade Palaver.
    """

    def __init__(self, *, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"the database has schema {found}, this version of Palaver supports up to {known}: upgrade Palaver"
        )


class DatabaseCorrupt(EngineError):
    """The database file is damaged.

    Way out: Run `palaver doctor`, then restore a backup.
    """


class RowUnreadable(DatabaseCorrupt):
    """A row is damaged and cannot be read. Other rows can. `conversation` is the id of its conversation, if known.

    Way out: Run `palaver verify`, which lists the changed rows, and take the row from a backup.
    """

    def __init__(self, row: str, conversation: str | None = None) -> None:
        self.row, self.conversation = row, conversation
        where = row if conversation is None else f"conversation {conversation}, {row}"
        super().__init__(
            f"{where}: the row is damaged and cannot be read. `palaver verify` lists the changed rows; "
            "restore it from a backup"
        )


class DatabaseReadOnly(EngineError):
    """The database file or its folder is not writable.

    Way out: Give this process write access to the file and its folder.
    """


class DatabaseFull(EngineError):
    """The disk is full. Nothing was written.

    Way out: Free some space, then retry.
    """


class FilesNotConfigured(EngineError):
    """No location for files is set (`files=`, PALAVER_FILES), and a database server has no default.

    Way out: Set it to a folder that all processes share, or to a bucket.
    """

    setting = "files"

    def __init__(self) -> None:
        super().__init__(
            "no location for files is set, and a database server has no default: set files= (PALAVER_FILES) to a "
            "folder that all processes share, or to a bucket (s3://bucket/prefix?endpoint=…)"
        )


class NotADatabase(EngineError):
    """The file is not an SQLite database. It was not changed.

    Way out: Open another file.
    """


# ---- over HTTP -----------------------------------------------------------------------------------------------------

# The nearest class in an error's ancestry decides. The second value ends the problem's type URN.
HTTP_STATUSES: dict[type[Exception], tuple[int, str]] = {
    NotRedacted: (422, "not-redacted"),
    InvalidInput: (422, "invalid-input"),
    TooLarge: (413, "too-large"),
    FileRefused: (415, "file-refused"),
    BudgetTooSmall: (422, "budget-too-small"),
    NotFound: (404, "not-found"),
    Gone: (410, "gone"),
    Conflict: (409, "conflict"),
    AppendConflict: (409, "append-conflict"),
    UpdateConflict: (409, "update-conflict"),
    SettingsConflict: (409, "settings-conflict"),
    IdempotencyConflict: (409, "idempotency-conflict"),
    TurnSuperseded: (409, "turn-superseded"),
    StreamSealed: (409, "stream-sealed"),
    ConversationBusy: (409, "conversation-busy"),
    QueueTimeout: (503, "queue-timeout"),
    PermissionDenied: (403, "permission-denied"),
    BudgetExceeded: (429, "budget-exceeded"),
    CostBudgetExceeded: (402, "cost-budget-exceeded"),
    PriceUnknown: (402, "price-unknown"),
    StorageBudgetExceeded: (402, "storage-budget-exceeded"),
    VerificationFailed: (500, "verification-failed"),
    MissingExtra: (501, "missing-extra"),
    ModelError: (502, "model-error"),
    ModelRefused: (502, "model-refused"),
    ModelUnavailable: (503, "model-unavailable"),
    StoreClosed: (503, "unavailable"),
    EngineError: (500, "database-error"),
    EngineUnavailable: (503, "unavailable"),
    DatabaseReadOnly: (503, "database-read-only"),
    DatabaseFull: (507, "database-full"),
    FilesNotConfigured: (500, "files-not-configured"),
    PalaverError: (500, "error"),
}
TITLES: dict[int, str] = {
    400: "Bad request",
    401: "Not authenticated",
    402: "Budget used up",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Invalid input",
    428: "Precondition required",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    501: "Not installed",
    502: "Model error",
    503: "Unavailable",
    504: "Timeout",
    507: "No space left",
}
# Attributes of an error that are sent to clients. None of them is content.
SENT = ("field", "size", "limit", "unit", "needed", "budget", "expected", "found", "right", "extra", "turn", "by",
         "conversation", "attachment", "model", "row", "media_type", "waited", "ahead",
         "kind", "measure", "period", "used", "retry_after")  # fmt: skip
PROBLEM_TYPE = "urn:palaver:problem:"


def summary_of(kind: type[BaseException]) -> str:
    """Return the first paragraph of the docstring of an error, without the way out."""
    return (kind.__doc__ or "").partition("\n\n")[0]


def _http(error: PalaverError) -> tuple[int, str]:
    return next(HTTP_STATUSES[kind] for kind in type(error).__mro__ if kind in HTTP_STATUSES)
