"""How many random examples a property test tries: few by default, fewer in `make quick`, many in `make properties`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Profiles, for `--hypothesis-profile`; the second is the default.
FEWEST, FEW, MANY = "fewest examples", "few examples", "many examples"
TIMES = 25  # how many more there are in the long form
PART = 4  # `make quick` looks at a quarter of the usual number


def load_profiles() -> None:
    # How long an example takes depends on who else uses the machine, and is not one of our guarantees.
    ours = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(FEWEST, ours, max_examples=40 // PART)
    settings.register_profile(FEW, ours, max_examples=40)
    settings.register_profile(MANY, ours, max_examples=40 * TIMES)
    settings.load_profile(FEW)


def examples(few: int) -> settings:
    """The number of examples, for a test that needs more or fewer than others; and the long form as many times more."""
    profile = settings.get_current_profile_name()
    if profile == FEWEST:
        return settings(max_examples=max(1, few // PART))
    return settings(max_examples=few * TIMES if profile == MANY else few)
