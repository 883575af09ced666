"""The ranking of all turns of a scope, or of the candidates of a very large one. Pure."""

from __future__ import annotations

from typing import NamedTuple

from palaver.recall.narrowing import LARGE, narrow
from palaver.recall.query import Query
from palaver.recall.ranking import Filter, rank_turns
from palaver.recall.scoring import Indices, Lexical, Scores
from palaver.recall.turn_arrays import Profile
from palaver.recall.vectors import Nearness


class ScoredScope(NamedTuple):
    """The turns that were scored, and the best of them, best first, as indices into the profile."""

    profile: Profile
    scores: Scores
    order: Indices


def score_scope(
    profile: Profile,
    query: Query,
    lexical: Lexical,
    near: Nearness,
    most: int,
    bounds: Filter,
    wider: Nearness | None = None,
    large: int = LARGE,
) -> ScoredScope:
    """Score the turns of a scope, and return the best `most` of those within the bounds.

    In a scope of more than `large` turns, only candidates are scored. `wider`: see `rank_turns`.
    """
    if len(profile) <= large or near.sample is not None:
        return ScoredScope(profile, *rank_turns(profile, query, lexical, near, most, bounds, wider=wider))
    some = narrow(profile, query, lexical, wider or near, bounds.excluded(profile))
    if wider is not None and wider.cosines is not None and near.cosines is not None:
        wider = some.near
        own = near._replace(cosines=near.cosines[some.indices], sample=some.near.sample)
        some = some._replace(near=own)
    ranked = rank_turns(some.profile, query, some.lexical, some.near, most, bounds, some.sample, wider)
    return ScoredScope(some.profile, *ranked)
