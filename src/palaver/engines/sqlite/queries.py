"""The statements of `queries.sql`, by name."""

from palaver.engines.sql import Queries

Q = Queries("palaver.engines.sqlite")
