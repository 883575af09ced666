"""The table of rules, in the order that decides between findings of the same length. Pure."""

from __future__ import annotations

from palaver.redaction.rules.numbers import NUMBERS
from palaver.redaction.rules.personal import PERSONAL_DATA
from palaver.redaction.rules.rule import Rule
from palaver.redaction.rules.secrets import ANNOUNCED_SECRETS, UNANNOUNCED_SECRETS

# The most specific first.
RULES: tuple[Rule, ...] = (*UNANNOUNCED_SECRETS, *NUMBERS, *ANNOUNCED_SECRETS, *PERSONAL_DATA)
