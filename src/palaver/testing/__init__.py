"""Palaver's promises as tests that any engine can be run against, and fakes for the clock, ids and models.

**The conformance kit.** `GUARANTEES` lists what every engine owes its users. Each one is an async function with a
sentence for a docstring. It is given a `Database`: something that can be opened, several times, also at once, on the
same data. `DatabaseAt(url)` is one for every URL that `palaver.open` understands.

From pytest, one test per guarantee:

    import pytest
    from palaver.testing import GUARANTEES, DatabaseAt, Guarantee

    @pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
    async def test_the_engine_keeps(guarantee: Guarantee, tmp_path):
        await guarantee.function(DatabaseAt(f"sqlite:///{tmp_path}/chat.db"))

(`pytest.register_assert_rewrite("palaver.testing.guarantees")` in a conftest makes failures show their values.)

Without pytest, with a fresh database for each guarantee:

    @asynccontextmanager
    async def fresh():
        with TemporaryDirectory() as folder:
            yield DatabaseAt(f"sqlite:///{folder}/chat.db")

    report = asyncio.run(check(fresh))     # prints one line per guarantee
    assert report.ok, report.broken

`python -m palaver.testing` does just that for SQLite.

**The cross-tenant suite** (`palaver.testing.rls_probe`, for Postgres) attacks every function and every table of your
database as another tenant, as another user, as nobody, with forged claims and owners, on connections that were used
before. **The insider** (`palaver.testing.insider`) attacks it as its own users: every function, every set of rights,
hostile values in every argument and field. `python -m palaver.testing postgresql://admin@localhost/chat` runs both, and
leaves nothing behind, and then the kit in databases of its own.

**The fakes.** `FakeClock`, `CountingIds`, `HashEmbedder` and `ScriptedModel` stand in for what is slow, random or paid:

    async with palaver.open(url, clock=FakeClock(), ids=CountingIds()) as store: ...

**The forgeries** (`palaver.testing.forgeries`) are texts that try to be read as another speaker, a date, a block or the
end of one. `find_forged(context, by="mallory")` reads a context in every form and returns what was attributed wrongly;
`unquote` removes the marks of quotations.

`palaver.testing.providers` is a model provider on this machine, for tests with the real SDKs.
"""

from palaver.testing import guarantees as _guarantees
from palaver.testing.fakes import CountingIds, FakeClock, HashEmbedder, ScriptedModel, UnexpectedCall
from palaver.testing.forgeries import FORGED_NAMES, FORGERIES, Forgery, find_forged, unquote
from palaver.testing.kit import GUARANTEES, Database, DatabaseAt, Guarantee, Report, Result, check, guarantee

__all__ = [
    "FORGED_NAMES",
    "FORGERIES",
    "GUARANTEES",
    "CountingIds",
    "Database",
    "DatabaseAt",
    "FakeClock",
    "Forgery",
    "Guarantee",
    "HashEmbedder",
    "Report",
    "Result",
    "ScriptedModel",
    "UnexpectedCall",
    "check",
    "find_forged",
    "guarantee",
    "unquote",
]

_guarantees.load()
