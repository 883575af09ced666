"""The statements of `queries.sql`, by name."""

from palaver.core.turn_draft import FORGOTTEN_FIELDS
from palaver.engines.rows import TurnRow
from palaver.engines.sql import Queries

# The columns that an append fills, in the order of its values; the others have defaults.
NEW_TURN_COLUMNS = tuple(name for name in TurnRow.__struct_fields__ if name not in ("tid", "superseded_by"))

Q = Queries(
    "palaver.engines.sqlite",
    turn_columns=", ".join(f"t.{name}" for name in TurnRow.__struct_fields__),
    new_turn_columns=", ".join(NEW_TURN_COLUMNS),
    new_turn_values=", ".join("?" for _ in NEW_TURN_COLUMNS),
    forgotten_fields=", ".join(
        f"{name} = {'NULL' if value is None else value}" for name, value in FORGOTTEN_FIELDS.items() if name != "salt"
    ),
)
