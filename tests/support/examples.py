"""How many random examples a property test looks at: few in every run, many in `make properties`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FEW, MANY = "few examples", "many examples"  # profiles; `--hypothesis-profile` chooses the other one
TIMES = 25  # how many more there are in the long form


def load_profiles() -> None:
    # How long an example takes depends on who else uses the machine, and is not a guarantee of ours.
    ours = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(FEW, ours, max_examples=40)
    settings.register_profile(MANY, ours, max_examples=40 * TIMES)
    settings.load_profile(FEW)


def examples(few: int) -> settings:
    """The number of examples, for a test that needs more or fewer than others; and the long form as many times more."""
    times = TIMES if settings.get_current_profile_name() == MANY else 1
    return settings(max_examples=few * times)
