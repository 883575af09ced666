"""The options of a context, and the policies that share its budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from palaver.core.validation import clean_count, clean_flag, clean_name, clean_text
from palaver.errors import InvalidInput
from palaver.model import ContentInput
from palaver.recall.terms import MAX_QUERY

DEFAULT_BUDGET = 8_000
IMAGE_TOKENS, FILE_TOKENS = 1_100, 1_500
OVERHEAD_TOKENS = 4  # of a message in addition to its content: role, separators
OVERHEAD_CHARACTERS = 13  # the same in the text of a context: "assistant: " and a blank line
PRIMING_TOKENS = 3  # of the start of the answer


@dataclass(frozen=True, slots=True)
class Policy:
    """How a budget is shared. Shares are fractions of the whole budget.

    - `memory`, `person`, `summaries`: the largest shares of these blocks. The recent turns get what they do not need.
    - `recall`: the share of recalled turns. It is fixed, so that the recent turns do not depend on the question.
    - `recent_least`, `recent`: the smallest and the largest share of the recent turns, including the current message.
      Without recall, they get its share as well.
    - `recent_turns`: at most this many recent turns.
    - `recall_first`: recall takes what it needs, and the recent turns get the rest.
    - `quoted`: show the recent turns as one quoted text instead of messages.
    - `strides`: drop the oldest of the recent turns in large steps, not one by one, so that most prompts begin like the
      one before.
    - `added_summaries`: summaries get their share in addition to the budget, and the budget is for the recent turns
      alone.
    """

    name: str
    memory: float = 0.1
    person: float = 0.08
    summaries: float = 0.05
    recall: float = 0.38
    recent: float = 0.6
    recent_least: float = 0.33
    recent_turns: int | None = None
    recall_first: bool = False
    quoted: bool = False
    strides: bool = True
    added_summaries: bool = False
    token_budget: int | None = DEFAULT_BUDGET
    char_budget: int | None = None


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("balanced"),
        Policy(
            "recall-heavy",
            memory=0.03,
            person=0.05,
            summaries=0.03,
            recall=1.0,
            recent=0.06,
            recent_turns=3,
            recall_first=True,
        ),
        Policy(
            "recent-chars",
            memory=0,
            person=0,
            summaries=0.3,
            recall=0,
            recent=1.0,
            strides=False,
            added_summaries=True,
            token_budget=None,
            char_budget=12_000,
        ),
        Policy(
            "last-20",
            memory=0,
            person=0,
            summaries=0,
            recall=0,
            recent=1.0,
            recent_turns=20,
            quoted=True,
            strides=False,
        ),
        Policy(
            "oldest-first",
            memory=0,
            person=0,
            summaries=0,
            recall=0,
            recent=1.0,
            strides=False,
            token_budget=None,
            char_budget=400_000,
        ),
    )
}


PolicyName = Literal["balanced", "recall-heavy", "recent-chars", "last-20", "oldest-first"]
RecallRange = Literal["conversation", "owner", "tenant"]


class RecallOptions(TypedDict, total=False):
    """Limits of what recall adds to a context.

    - `k`: the maximum number of turns that recall adds; by default as many as fit into its share of the budget.
    - `threshold`: the lowest relevance of an added turn, between 0 and 1; 0.1 by default. 0: no limit.
    """

    k: int | None
    threshold: float | None


class SharedContextOptions(TypedDict, total=False):
    """Options of a context that both `build_context` and `generate` take.

    - `char_budget`: a budget in characters instead of `token_budget`.
    - `policy`: the policy that shares the budget among memory, summaries, recall and recent turns; `balanced` by
      default. A `PolicyName`, or your own `Policy`.
    - `recent_turns`: the maximum number of recent turns to include. A tool call and its results count as one turn. By
      default, the policy decides.
    - `semantic_recall`: `False` switches recall off. A mapping with `k` and `threshold` limits it; see `RecallOptions`.
    - `recall_scope`: where recall searches: this `conversation` (the default), all conversations of its `owner`, or the
      whole `tenant`.
    - `include_facts`, `include_working_memory`, `include_person`: `False` leaves out the block with facts, notes or the
      memory of the person. The last one exists only where persons are remembered (`settings.person`).
    - `note_omissions`: whether the context mentions that older turns were left out; `True` by default.
    - `shorten`: whether to shorten long turns and tool results instead of leaving them out; `True` by default.
    - `image_tokens`, `file_tokens`: the number of tokens that an image (1,100 by default), or a file that is given by
      its URL (1,500), counts for.
    """

    char_budget: int | None
    policy: PolicyName | Policy
    recent_turns: int | None
    semantic_recall: RecallOptions | bool | None
    recall_scope: RecallRange
    include_facts: bool
    include_working_memory: bool
    include_person: bool
    note_omissions: bool
    shorten: bool
    image_tokens: int | None
    file_tokens: int | None


class ContextOptions(SharedContextOptions, total=False):
    """Options of `build_context`.

    - `query`: the text that recall searches for; by default the message to answer. It is not part of the context.
    - `message`: a new message that is not stored. The context ends with it.
    - `instructions`: the system instructions. They are always included.
    - `viewer`: the name of the agent that will read the context. Its own turns get the role `assistant`; turns of other
      agents become user turns with their names.
    - `filter_participants`: only turns of these actors.
    - `model`: the name of the model that will read the context; its tokenizer counts the tokens.
    - `preview`: `True` if no model will read this context. It then requests no summaries, and the next context is not
      compared with it.
    """

    query: str | None
    message: ContentInput | None
    instructions: str | None
    viewer: str | None
    filter_participants: Iterable[str] | None
    model: str | None
    preview: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The checked options of one `build_context`."""

    policy: Policy = POLICIES["balanced"]
    token_budget: int | None = None
    char_budget: int | None = None
    query: str | None = None
    message: ContentInput | None = None
    instructions: str | None = None
    viewer: str | None = None
    recent_turns: int | None = None
    recall_k: int | None = None  # None: as many as fit
    recall_threshold: float | None = None
    recall: bool = True
    recall_scope: RecallRange = "conversation"
    include_facts: bool = True
    include_working_memory: bool = True
    include_person: bool = True
    filter_participants: frozenset[str] | None = None
    note_omissions: bool = True
    shorten: bool = True
    image_tokens: int = IMAGE_TOKENS
    file_tokens: int = FILE_TOKENS
    model: str | None = None
    preview: bool = False  # only to look at: it requests no compaction, and does not count as the previous context

    @property
    def budget(self) -> int:
        return self.char_budget if self.char_budget is not None else self.token_budget or 0

    @property
    def unit(self) -> str:
        return "tokens" if self.char_budget is None else "characters"

    @property
    def overhead(self) -> int:
        return OVERHEAD_TOKENS if self.char_budget is None else OVERHEAD_CHARACTERS

    @property
    def priming(self) -> int:
        return PRIMING_TOKENS if self.char_budget is None else 0

    @property
    def wants_recall(self) -> bool:
        return self.recall and self.policy.recall > 0 and self.recall_k != 0


def policy_named(name: object) -> Policy:
    """Return a policy by its name; a policy of the caller's own is returned as it is."""
    if isinstance(name, Policy):
        return name
    if not isinstance(name, str) or name not in POLICIES:
        raise InvalidInput("policy", f"must be one of {', '.join(POLICIES)}")
    return POLICIES[name]


def with_budget(options: Options, token_budget: int | None, char_budget: int | None) -> Options:
    """Set the budget: the given one, or the policy's default."""
    if token_budget is not None and char_budget is not None:
        raise InvalidInput("char_budget", "cannot be combined with token_budget; give one of them")
    for name, value in (("token_budget", token_budget), ("char_budget", char_budget)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**53):
            raise InvalidInput(name, "must be a whole number, one or more")
    if token_budget is None and char_budget is None:
        token_budget, char_budget = options.policy.token_budget, options.policy.char_budget
    return replace(options, token_budget=token_budget, char_budget=char_budget)


# ---- options from keywords -----------------------------------------------------------------------------------------


def parse_options(
    *,
    token_budget: int | None = None,
    char_budget: int | None = None,
    query: str | None = None,
    message: ContentInput | None = None,
    instructions: str | None = None,
    viewer: str | None = None,
    recent_turns: int | None = None,
    semantic_recall: RecallOptions | bool | None = None,
    recall_scope: RecallRange = "conversation",
    include_facts: bool = True,
    include_working_memory: bool = True,
    include_person: bool = True,
    filter_participants: Iterable[str] | None = None,
    note_omissions: bool = True,
    shorten: bool = True,
    image_tokens: int | None = None,
    file_tokens: int | None = None,
    policy: PolicyName | Policy = "balanced",
    model: str | None = None,
    preview: bool = False,
) -> Options:
    """Check the keywords of `build_context`; see `ContextOptions` for their meaning."""
    k, threshold, recall = _recall_options(semantic_recall)
    if recall_scope not in ("conversation", "owner", "tenant"):
        raise InvalidInput("recall_scope", "must be conversation, owner or tenant")
    options = Options(
        policy=policy_named(policy),
        query=None if query is None else clean_text("query", query)[:MAX_QUERY],
        message=message,
        instructions=None if instructions is None else clean_text("instructions", instructions),
        viewer=None if viewer is None else clean_name("viewer", viewer),
        recent_turns=clean_count("recent_turns", recent_turns),
        recall_k=k,
        recall_threshold=threshold,
        recall=recall,
        recall_scope=recall_scope,
        include_facts=clean_flag("include_facts", include_facts),
        include_working_memory=clean_flag("include_working_memory", include_working_memory),
        include_person=clean_flag("include_person", include_person),
        filter_participants=None if filter_participants is None else frozenset(filter_participants),
        note_omissions=clean_flag("note_omissions", note_omissions),
        shorten=clean_flag("shorten", shorten),
        model=model,
        preview=preview,
        image_tokens=_default(clean_count("image_tokens", image_tokens), IMAGE_TOKENS),
        file_tokens=_default(clean_count("file_tokens", file_tokens), FILE_TOKENS),
    )
    return with_budget(options, token_budget, char_budget)


OPTIONS = ("token_budget", *ContextOptions.__annotations__)


def _default(value: int | None, default: int) -> int:
    return default if value is None else value


def _recall_options(given: RecallOptions | bool | None) -> tuple[int | None, float | None, bool]:
    """Return the limit, the threshold, and whether to recall at all."""
    if given is None or isinstance(given, bool):
        return None, None, given is not False
    if not isinstance(given, Mapping):
        raise InvalidInput("semantic_recall", "must be true, false or an object with k and threshold")
    unknown = given.keys() - {"k", "threshold"}
    if unknown:
        raise InvalidInput(f"semantic_recall.{sorted(unknown)[0]}", "is unknown; the options are k and threshold")
    k, threshold = given.get("k"), given.get("threshold")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise InvalidInput("semantic_recall.threshold", "must be a number")
    return clean_count("semantic_recall.k", k), threshold, True
