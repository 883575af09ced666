"""Explains why a recall found nothing. Reasons contain counts, never content. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.model import Empty

if TYPE_CHECKING:  # numpy is imported when something is recalled, not when a store is opened
    from palaver.recall.ranking import Ranking

NOTHING_ASKED = Empty("nothing asked", "the query has no word to look for")


def explain_ranking(ranking: Ranking, threshold: float | None, *, embeds: bool) -> Empty:
    """Return why no ranked turn was taken."""
    import numpy as np

    turns = len(ranking.profile)
    if not turns:
        return Empty("nothing stored", "there is no turn to search in this range")
    if embeds and ranking.near.question is None:
        why = ranking.near.refusal or "the embedder did not answer"
        return Empty("not ready", f"{why}; {turns:,} turns were searched by words alone")
    cosines = ranking.near.cosines
    waiting = 0 if cosines is None else int(np.isnan(cosines).sum())
    if waiting and not ranking.is_sparse:
        return Empty("not ready", f"{waiting:,} of {turns:,} turns have no vector yet, and no words fit")
    if threshold is not None:
        best = ranking.best_relevance
        return Empty(
            "nothing relevant", f"{turns:,} turns; the best has relevance {best:.2f}, the floor is {threshold:g}"
        )
    return Empty("nothing relevant", f"none of {turns:,} turns matches")
