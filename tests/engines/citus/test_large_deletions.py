"""Deletions in slices: the tests of the Postgres engine, on a cluster."""

from tests.engines.postgres.test_large_deletions import (  # noqa: F401
    admin,
    store,
    test_expired_conversations_go_in_slices_and_each_is_reported_once,
    test_forget_itself_continues_what_was_interrupted,
    test_forget_takes_several_transactions_and_leaves_nothing,
    test_only_the_owner_may_forget_it,
    test_what_is_being_forgotten_is_hidden_and_the_next_sweep_continues,
)
