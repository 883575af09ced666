"""The old name of `palaver.testing.rls_probe`, kept for one release."""

from palaver.model import warn_renamed
from palaver.testing.rls_probe import *  # noqa: F403

warn_renamed("palaver.testing.strangers", "palaver.testing.rls_probe")
