"""Request and response bodies, for validation and for the OpenAPI document, one module per noun.

Only the server uses pydantic. Handlers write `schemas.Turn`, whichever module holds it.
"""

from palaver.server.rest.schemas.answers import *  # noqa: F403
from palaver.server.rest.schemas.base import *  # noqa: F403
from palaver.server.rest.schemas.budgets import *  # noqa: F403
from palaver.server.rest.schemas.conversations import *  # noqa: F403
from palaver.server.rest.schemas.files import *  # noqa: F403
from palaver.server.rest.schemas.maintenance import *  # noqa: F403
from palaver.server.rest.schemas.memory import *  # noqa: F403
from palaver.server.rest.schemas.people import *  # noqa: F403
from palaver.server.rest.schemas.problems import *  # noqa: F403
from palaver.server.rest.schemas.streams import *  # noqa: F403
from palaver.server.rest.schemas.turns import *  # noqa: F403
