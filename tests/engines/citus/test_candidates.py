"""Recall in large scopes, whose turns the database ranks: the tests of the Postgres engine, on a cluster."""

from tests.engines.postgres.test_candidates import (  # noqa: F401
    store,
    test_a_question_without_words_or_in_an_empty_tenant_finds_what_there_is,
    test_bounds_of_time_hold_for_candidates,
    test_candidates_are_ranked_as_if_all_turns_were_read,
    test_nobody_gets_candidates_from_conversations_that_it_cannot_see,
    test_replaced_forgotten_and_expired_turns_are_not_candidates,
    test_the_number_of_candidates_is_bounded,
    test_turns_of_a_day_that_the_question_names_are_candidates,
)
