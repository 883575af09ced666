"""Workers for several tenants: the tests of the Postgres engine, on a cluster."""

from tests.engines.postgres.test_workers import (  # noqa: F401
    test_many_workers_do_every_job_once_for_every_tenant,
    test_settle_waits_for_its_own_tenant_and_for_no_other,
    test_the_job_of_a_killed_worker_is_taken_over,
)
