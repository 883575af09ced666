"""Whether people are remembered across conversations: settings of a store, a tenant and a conversation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from palaver.errors import InvalidInput
from palaver.memory.retention import retention_of
from palaver.memory.subjects import REVIEWS, Review
from palaver.model import ROLES

PersonMode = Literal["off", "read", "read-write"]
PERSON_MODES: tuple[PersonMode, ...] = get_args(PersonMode)
Consent = Literal["assumed", "required"]
CONSENTS: tuple[Consent, ...] = get_args(Consent)


class PersonOptions(TypedDict, total=False):
    """Options for the memory of persons, which all conversations of a person share.

    - `mode`: `off` (the default); `read`: contexts show what is known about the person; `read-write`: also learn from
      conversations.
    - `tenants`: the mode for individual tenants, by name. `settings.person` of a conversation overrides both.
    - `review`: what to do with statements found outside the person's own turns. `review` (the default): propose them,
      for `Subject.approve`. `auto`: approve them at once. `off`: ignore them.
    - `consent`: `assumed` (the default), or `required`: learn nothing about a person who has not agreed
      (`person.consent(True)`).
    - `default_person`: the person who speaks in conversations without an owner, for programs with a single user. By
      default, nothing is learnt there, because several people may share such a conversation.
    """

    mode: PersonMode
    tenants: Mapping[str, PersonMode]
    review: Review
    consent: Consent
    default_person: str | None


@dataclass(frozen=True, slots=True)
class PersonSettings:
    """The checked options of a store."""

    mode: PersonMode = "off"
    tenants: Mapping[str, PersonMode] = field(default_factory=dict)
    review: Review = "review"
    consent: Consent = "assumed"
    default_person: str | None = None

    def person_of(self, actor: str, owner: str) -> str | None:
        """Return the person who speaks under a name. The name of a role stands for the owner."""
        name = actor if actor and actor not in ROLES else owner
        return name or self.default_person

    def mode_of(self, tenant: str, settings: Mapping[str, Any]) -> PersonMode:
        """Return the mode of a conversation. One whose words are not kept is left out, unless it says otherwise."""
        given = settings.get("person")
        if given in PERSON_MODES:
            mode: PersonMode = given
            return mode
        if retention_of(settings) != "full":
            return "off"
        return self.tenants.get(tenant, self.mode)


def clean_person_options(given: object) -> PersonSettings:
    """Check the option `person` of a store: a mode, or a mapping."""
    if given is None:
        return PersonSettings()
    options: Mapping[str, Any] = {"mode": given} if isinstance(given, str) else given  # type: ignore[assignment]
    if not isinstance(options, Mapping):
        raise InvalidInput("person", f"must be one of {', '.join(PERSON_MODES)}, or a mapping")
    for name in options:
        if name not in PersonOptions.__annotations__:
            raise InvalidInput(
                f"person.{name}", f"is unknown; the options are {', '.join(PersonOptions.__annotations__)}"
            )
    tenants = options.get("tenants") or {}
    check_mode("person.mode", options.get("mode", "off"))
    for tenant, mode in tenants.items():
        check_mode(f"person.tenants.{tenant}", mode)
    _check("person.review", options.get("review", "review"), REVIEWS)
    _check("person.consent", options.get("consent", "assumed"), CONSENTS)
    person = options.get("default_person")
    if person is not None and not (isinstance(person, str) and person):
        raise InvalidInput("person.default_person", "must be a name")
    return PersonSettings(**{**options, "tenants": dict(tenants)})


def check_mode(field: str, value: object) -> None:
    """Refuse a value that is not a mode."""
    _check(field, value, PERSON_MODES)


def _check(field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(field, f"must be one of {', '.join(known)}")
