import pytest

pytest.register_assert_rewrite("palaver.testing.guarantees", "palaver.testing.kit")
