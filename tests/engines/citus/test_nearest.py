"""The nearest vectors: the tests of the Postgres engine, on a cluster."""

from tests.engines.postgres.test_nearest import (  # noqa: F401
    test_the_nearest_are_ranked_as_if_all_were_looked_at,
    test_when_the_index_finds_too_little_every_vector_is_looked_at,
)
