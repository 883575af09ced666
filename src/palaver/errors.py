"""Everything Palaver raises on purpose, as one tree.

    PalaverError
    ├── InvalidInput (ValueError)      names the field, and the limit where there is one
    │   ├── TooLarge
    │   ├── NotRedacted                a secret in a text that bypassed the redactor of its conversation
    │   ├── FileRefused                an unsupported type, not the claimed type, or an archive bomb
    │   └── BudgetTooSmall             too small for what a context must contain; carries both numbers
    ├── NotFound (LookupError)         also for the ids of other tenants
    │   ├── ConversationNotFound
    │   ├── TurnNotFound
    │   ├── AttachmentNotFound
    │   └── Gone                       was deleted for good
    │       ├── ConversationGone
    │       └── TurnGone
    ├── Conflict                       another writer was first; read again, then decide
    │   ├── AppendConflict             expected one sequence number, found another
    │   ├── UpdateConflict             the conversation has changed since it was read
    │   ├── SettingsConflict           the conversation exists already, with other settings
    │   ├── IdempotencyConflict        the same key with other content
    │   ├── TurnSuperseded             the turn to replace was replaced already
    │   ├── StreamSealed               the stream was committed, aborted or taken over
    │   ├── StreamMoved                a commit that does not know the whole text
    │   ├── ConversationBusy           another question is being answered, or it is being reset
    │   │   └── QueueTimeout           the answers ahead of a question took too long; the question is stored
    │   └── AlreadyImported            the conversation exists already and differs
    ├── PermissionDenied               the scope lacks a right
    │   └── TokenRefused               the token is missing, expired or invalid here
    ├── BudgetExceeded                 a budget of the tenant, user or key is used up; says which, and until when
    │   ├── CostBudgetExceeded         of money
    │   │   └── PriceUnknown           a budget of money holds, and the model has no price
    │   └── StorageBudgetExceeded      of bytes or conversations: only deletion makes room
    ├── VerificationFailed             the log and the rows disagree; names the first bad row
    ├── ScrubPending                   deleted, but a reader or a full disk keeps old bytes for now
    ├── MissingExtra (ImportError)     an optional dependency; says which extra to install
    ├── ModelError                     a call of a model failed; names the model, never quotes it
    │   ├── ModelUnavailable           unreachable, overloaded or failing: retry
    │   │   └── RateLimited            `retry_after` has the seconds, if the service says them
    │   ├── ModelRefused               the service refused the request: key, name, settings, policy
    │   │   ├── ContextTooLong         more tokens than the model can read
    │   │   └── PreviousResponseMissing  the service does not know the answer that was to be continued
    │   └── BadModelResponse           incomplete, or not as the protocol says
    ├── WrongEventLoop (RuntimeError)  the store was opened in another event loop, or asyncio is not running
    ├── StoreClosed
    └── EngineError                    the database failed; never quotes data
        ├── EngineUnavailable          busy, locked or unreachable: retry
        ├── SchemaMissing
        ├── DatabaseTooNew
        ├── DatabaseCorrupt
        │   └── RowUnreadable          one row, which it names; the others can still be read
        ├── DatabaseReadOnly
        ├── DatabaseFull
        ├── FilesNotConfigured         a server database, and no location for files: names the setting
        └── NotADatabase               the file is not a SQLite database

Errors carry data (attributes), and never the content of a turn, a key or a token.
"""

from __future__ import annotations


class PalaverError(Exception):
    """Base of everything Palaver raises on purpose."""

    @property
    def http_status(self) -> int:
        """The status with which a server replies to it."""
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
    """An argument is invalid. `field` names it, `problem` says what is wrong with it.

    Way out: Correct the argument that `field` names.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


class TooLarge(InvalidInput):
    """A value is over its limit. `size` and `limit` are in `unit`.

    Way out: Send less: `size` and `limit` say by how much.
    """

    def __init__(self, field: str, *, size: int, limit: int, unit: str) -> None:
        self.size, self.limit, self.unit = size, limit, unit
        super().__init__(field, f"{size:,} {unit} is over the limit of {limit:,} {unit}")


class NotRedacted(InvalidInput):
    """A text for a redacted conversation holds a secret or personal data of this `kind`, and was not redacted.

    Way out: Write through the library or the server, which redact. Only SQL that bypasses them gets this error.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        problem = f"holds {kind!r}, and this conversation is redacted"
        super().__init__("content", f"{problem}: write through the library or the server, which replace it")


class FileRefused(InvalidInput):
    """A file is refused. `media_type` is the type of its bytes, or the claimed one, if it is known.

    Way out: Send a file of an allowed type, with the name and type of its bytes.
    """

    def __init__(self, field: str, problem: str, *, media_type: str | None) -> None:
        self.media_type = media_type
        super().__init__(field, problem)


class BudgetTooSmall(InvalidInput):
    """A context cannot fit its budget: what must be in it needs `needed` of `budget` `unit`.

    Way out: Give a budget of `needed` or more, or a shorter message.
    """

    def __init__(self, what: str, *, needed: int, budget: int, unit: str) -> None:
        self.needed, self.budget, self.unit = needed, budget, unit
        super().__init__("budget", f"{what} needs {needed:,} {unit}, and the budget is {budget:,}")


class NotFound(PalaverError, LookupError):
    """It does not exist, or the scope cannot see it.

    Way out: Check the id, and the tenant and user of the store.
    """


class ConversationNotFound(NotFound):
    """No conversation with this id or key is visible to the scope.

    Way out: Check tenant, user and owner. `store.conversation(key)` creates one.
    """

    def __init__(self, conversation: str, hint: str = "") -> None:
        self.conversation = conversation
        super().__init__(f"no conversation {conversation!r}" + (f": {hint}" if hint else ""))


class TurnNotFound(NotFound):
    """The conversation has no turn with this id.

    Way out: Use a turn of this conversation.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"no turn {turn!r} in this conversation")


class AttachmentNotFound(NotFound):
    """The conversation has no attachment with this id.

    Way out: Attach the file again: it was swept, or it belongs to another turn.
    """

    def __init__(self, attachment: str) -> None:
        self.attachment = attachment
        super().__init__(f"no attachment {attachment!r} in this conversation")


class SubjectNotFound(NotFound):
    """No subject of this kind and name is visible to the scope, or it has no item with this id.

    Way out: Check `kind`, `subject` and `item`.
    """

    def __init__(self, kind: str, subject: str, item: str | None = None) -> None:
        self.kind, self.subject, self.item = kind, subject, item
        super().__init__(f"no {kind} {subject!r}" if item is None else f"no item {item!r} of {kind} {subject!r}")


class Gone(NotFound):
    """Deleted for good. Over HTTP this is 410, not 404.

    Way out: Nothing brings it back.
    """


class ConversationGone(Gone):
    """The conversation was deleted.

    Way out: `store.conversation(key)` starts a new one.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(f"conversation {conversation!r} was deleted for good; a new one may have the same key")


class TurnGone(Gone):
    """The turn was forgotten.

    Way out: Send the message under a new idempotency key, if it is meant again.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"turn {turn!r} was forgotten, and nothing brings it back")


class Conflict(PalaverError):
    """Another writer was first. Nothing was written: read again, then decide.

    Way out: Read again, then decide.
    """


class AppendConflict(Conflict):
    """`expected_seq` is not the next sequence number: another turn was stored first.

    Way out: Read the turns from `expected` on, then decide.
    """

    def __init__(self, *, expected: int, found: int) -> None:
        self.expected, self.found = expected, found
        super().__init__(
            f"the thread moved on: expected the next seq to be {expected}, found {found}; read it again, then decide"
        )


class UpdateConflict(Conflict):
    """The conversation has changed since it was read. `expected` and `found` are microseconds since 1970.

    Way out: Call `refresh`, then decide.
    """

    def __init__(self, *, expected: int, found: int) -> None:
        self.expected, self.found = expected, found
        super().__init__("the conversation has changed since it was read; read it again, then decide")


class SettingsConflict(Conflict):
    """The conversation exists already, and a setting that was given for it has another value. `field` names it.

    Way out: Call `update(settings=…)`, or open the conversation without settings.
    """

    def __init__(self, conversation: str, field: str) -> None:
        self.conversation, self.field = conversation, field
        super().__init__(
            f"conversation {conversation!r} exists already, with another {field}; "
            "to change it, use update(settings=…); to keep it, open the conversation without settings"
        )


class IdempotencyConflict(Conflict):
    """The `idempotency_key` was used before, for `turn`, with other content.

    Way out: Use a new key for another message.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"this idempotency_key stored turn {turn!r} with other content")


class TurnSuperseded(Conflict):
    """The turn to replace was replaced already, by turn `by`.

    Way out: Replace the turn `by` instead.
    """

    def __init__(self, turn: str, *, by: str | None) -> None:
        self.turn, self.by = turn, by
        super().__init__(f"turn {turn!r} is no longer in the active view" + (f"; {by!r} took its place" if by else ""))


class StreamSealed(Conflict):
    """The streamed turn was committed or aborted already; `status` says which.

    Way out: Open another stream; `status` says how this one ended.
    """

    def __init__(self, turn: str, status: str) -> None:
        self.turn, self.status = turn, status
        super().__init__(f"the stream of turn {turn!r} is sealed ({status}); nothing more can be written to it")


class StreamMoved(Conflict):
    """The commit of a streamed turn does not have all of its text.

    Way out: Commit again: another chunk arrived before the commit.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        super().__init__(f"the stream of turn {turn!r} has moved on: read it again, then commit")


class ConversationBusy(Conflict):
    """Another question of this conversation is being answered, and its settings refuse a second one.

    Also raised while a long conversation is being reset, which takes a moment.

    Way out: Ask again after the current answer. `settings={"simultaneous": …}` decides what happens.
    """

    def __init__(self, conversation: str, problem: str = "") -> None:
        self.conversation = conversation
        super().__init__(
            problem or "another question of this conversation is being answered; ask again when its answer is there"
        )


class QueueTimeout(ConversationBusy):
    """A question waited `waited` seconds behind `ahead` others. It is stored: `generate(question=…)` asks it again.

    Way out: The question is stored: call `generate(question=…)` later.
    """

    def __init__(self, conversation: str, *, waited: float, ahead: int) -> None:
        self.waited, self.ahead = waited, ahead
        answers = "1 answer" if ahead == 1 else f"{ahead} answers"
        super().__init__(conversation, f"waited {waited:g} s, and {answers} must be made first; ask it again later")


class AlreadyImported(Conflict):
    """The conversation exists already, with another history.

    Way out: Import into another database or tenant.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(f"conversation {conversation!r} is here already, with another history")


NEEDED_FOR = {
    "read": ", which reading needs",
    "write": ", which storing and changing anything needs",
    "generate": ", which asking a model needs",
    "system": ", which system messages and instructions need",
    "act_for": ", which writing under another person's name needs",
    "admin": ", which is for the owner's affairs and for maintenance",
}


class PermissionDenied(PalaverError):
    """The scope does not have the right `right`. `detail` says how a caller of the server gets it.

    Way out: Use a scope or a key with the right that `right` names.
    """

    def __init__(self, right: str) -> None:
        self.right = right
        self.detail = (
            f"this caller lacks the right {right!r}{NEEDED_FOR.get(right, '')}. A key gets it with "
            f"`palaver keys create --right {right}`, a token in app_metadata.palaver_rights"
        )
        super().__init__(f"{self.detail}, a scope with scope.with_rights({right!r})")


class TokenRefused(PermissionDenied):
    """The token is missing, expired or invalid. Nothing was read or written: sign in again, then retry.

    Way out: Sign in again.
    """

    def __init__(self, problem: str) -> None:
        self.right, self.problem = "signed in", problem
        PalaverError.__init__(self, problem)


class BudgetExceeded(PalaverError):
    """A budget does not allow a call. Nothing was sent to a model, or stored.

    `kind` says whose budget it is: the `tenant`'s, the `user`'s or the `key`'s; `measure` and `period` what it limits.
    `retry_after` has the seconds until the period ends.

    Way out: Wait `retry_after` seconds, or raise the budget that `kind`, `measure` and `period` name.
    """

    def __init__(
        self, kind: str, measure: str, period: str, *, limit: float, used: float, retry_after: float | None = None
    ) -> None:
        self.kind, self.measure, self.period = kind, measure, period
        self.limit, self.used, self.retry_after = limit, used, retry_after
        what = measure if period == "total" else f"{measure} per {period}"
        super().__init__(f"{budget_of(kind)} allows {limit:,g} {what}, and {used:,g} are used or reserved")


class CostBudgetExceeded(BudgetExceeded):
    """A budget of money does not allow a call.

    Way out: Wait for the next period, or raise the budget.
    """


class PriceUnknown(CostBudgetExceeded):
    """A budget of money holds, and `model` has no price, so that nobody knows what a call costs.

    Way out: Set the `price` of `model` in `models=`.
    """

    def __init__(self, kind: str, model: str) -> None:
        self.model = model
        self.kind, self.measure, self.period = kind, "dollars", "total"
        self.limit, self.used, self.retry_after = 0.0, 0.0, None
        problem = f"{budget_of(kind)} limits money, and the model {model!r} has no price"
        PalaverError.__init__(self, f"{problem}: set `price` of that model in `models`")


class StorageBudgetExceeded(BudgetExceeded):
    """A budget of bytes or conversations does not allow to store more. Deleting makes room.

    Way out: Delete something, or raise the budget.
    """


def budget_of(kind: str) -> str:
    """Say whose budget it is."""
    return {"tenant": "the tenant's budget", "user": "the user's budget", "key": "this key's budget"}[kind]


class VerificationFailed(PalaverError):
    """The log and the rows of a conversation disagree. `row` is the first bad row.

    Way out: The row `row` was changed outside of Palaver: compare it with a backup.
    """

    def __init__(self, conversation: str, row: str, problem: str) -> None:
        self.conversation, self.row, self.problem = conversation, row, problem
        super().__init__(f"conversation {conversation}, {row}: {problem}")


class ScrubPending(PalaverError):
    """The rows are deleted; old bytes remain in the WAL until another reader closes its transaction.

    `cause` is set where it is not a reader but the database that failed: "the disk is full", for example.

    Way out: Nothing to do: the last bytes go when the other reader ends, or when a full disk (`cause`) has space again.
    """

    def __init__(self, cause: str | None = None) -> None:
        self.cause = cause
        why, until = (cause, "it can be written") if cause else ("another process is reading", "it has finished")
        super().__init__(
            f"deleted; {why}, so old bytes stay in the WAL for now. "
            f"They are removed as soon as {until}: by this store, or by the next one that opens the file."
        )


class MissingExtra(PalaverError, ImportError):
    """An optional dependency is not installed. `extra` is the extra that has it.

    Way out: `pip install "palaver[…]"` with the extra that `extra` names.
    """

    def __init__(self, extra: str, what: str, *, also: tuple[str, ...] = ()) -> None:
        self.extra = extra
        wanted = " ".join(f'"{one}"' for one in (f"palaver[{extra}]", *also))
        super().__init__(f"{what} needs an optional dependency: pip install {wanted}")


class ModelError(PalaverError):
    """A call of a model failed. `status` is the HTTP status, if there was one. The message never quotes the service.

    Way out: Look at `status`, which is the provider's.
    """

    def __init__(self, model: str, problem: str, *, status: int | None = None) -> None:
        self.model, self.problem, self.status = model, problem, status
        super().__init__(f"{model} {problem}" + (f" (status {status})" if status is not None else ""))


class ModelUnavailable(ModelError):
    """The service cannot answer now: retry later. Memory work is retried by itself.

    Way out: Try again later.
    """


class RateLimited(ModelUnavailable):
    """The service takes no more requests now. `retry_after` is in seconds, if it says how long.

    Way out: Try again after `retry_after` seconds, if it is set.
    """

    def __init__(self, model: str, *, retry_after: float | None = None, status: int | None = 429) -> None:
        self.retry_after = retry_after
        when = "" if retry_after is None else f", for {retry_after:g} s"
        super().__init__(model, f"takes no more requests now{when}", status=status)


class ModelRefused(ModelError):
    """The service refused the request; a retry would be refused, too.

    Way out: Check the key, the model's name and the settings. Another try gives the same result.
    """


class ContextTooLong(ModelRefused):
    """The prompt has more tokens than the model can read.

    Way out: Use a smaller `token_budget`, or set `window` in `models=`.
    """

    def __init__(self, model: str, *, status: int | None = None) -> None:
        super().__init__(model, "cannot read so much: use a smaller token_budget", status=status)


class PreviousResponseMissing(ModelRefused):
    """The service does not know the response that was to be continued.

    Way out: Nothing to do: `generate` asks again with the whole context.
    """

    def __init__(self, model: str, *, status: int | None = None) -> None:
        super().__init__(model, "does not know the answer that was to be continued", status=status)


class BadModelResponse(ModelError):
    """The response is incomplete or malformed. The part that was read is kept as an aborted turn.

    Way out: Ask again. The text so far is kept as an aborted turn.
    """


class WrongEventLoop(PalaverError, RuntimeError):
    """The store belongs to another event loop, or no asyncio loop is running here. The message says what to do.

    Way out: Open one store per event loop; without asyncio, use `palaver.sync`.
    """


class StoreClosed(PalaverError):
    """The store is closed, or this process is a fork of the one that opened it.

    Way out: Use the store inside the block of `palaver.open`.
    """

    def __init__(self) -> None:
        super().__init__("the store is closed; open the database again")


class EngineError(PalaverError):
    """The database failed. The message never quotes data. `sqlstate` is the error code of Postgres, if there is one.

    Way out: Look at the server's log; `sqlstate` is Postgres's code.
    """

    sqlstate: str | None = None


class EngineUnavailable(EngineError):
    """The database is busy, locked or unreachable. The call may be retried.

    With `connection_lost`, it is not known whether the call was carried out.

    Way out: Try again; repeat an append with the same idempotency key.
    """

    connection_lost: bool = False


class SchemaMissing(EngineError):
    """The database has no Palaver schema. `palaver migrate` creates it.

    Way out: Run `palaver migrate`, or open the store with `migrate_url=`.
    """


class DatabaseTooNew(EngineError):
    """The database has schema `found`; this version of Palaver knows schemas up to `known`.

    Way out: Upgrade Palaver.
    """

    def __init__(self, *, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"the database has schema {found}, this version of Palaver knows up to {known}: upgrade Palaver"
        )


class DatabaseCorrupt(EngineError):
    """The file is damaged. Restore a backup, or try `palaver doctor`.

    Way out: Run `palaver doctor`, and restore a backup.
    """


class RowUnreadable(DatabaseCorrupt):
    """A row was damaged and cannot be read. `conversation` is its id, if it is known.

    Way out: Run `palaver verify`, which lists the changed rows. The other rows can be read.
    """

    def __init__(self, row: str, conversation: str | None = None) -> None:
        self.row, self.conversation = row, conversation
        where = row if conversation is None else f"conversation {conversation}, {row}"
        super().__init__(
            f"{where}: it was damaged and cannot be read. `palaver verify` lists what was changed; "
            "a backup has it as it was"
        )


class DatabaseReadOnly(EngineError):
    """The file or its folder cannot be written.

    Way out: Let this process write to the file and its folder.
    """


class DatabaseFull(EngineError):
    """No space left. Nothing was written.

    Way out: Make room. Nothing was written.
    """


class FilesNotConfigured(EngineError):
    """No location for files is set: the option `files` (PALAVER_FILES) must name a shared folder or a bucket.

    Way out: Set `files=`: a database server has no default location for files.
    """

    setting = "files"

    def __init__(self) -> None:
        super().__init__(
            "no location for files is set, and a database server has no default: set files= (PALAVER_FILES) to a "
            "folder that all processes share, or to a bucket (s3://bucket/prefix?endpoint=…)"
        )


class NotADatabase(EngineError):
    """The file is not a SQLite database. It was not changed.

    Way out: Name another file. This one was left alone.
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
