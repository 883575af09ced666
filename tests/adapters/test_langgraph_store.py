"""The LangGraph store: what its own in-memory store does, and search by meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base")

from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import palaver
from palaver import Store
from palaver.adapters.langgraph_store import PalaverStore
from tests.support.memory import url

BOOKS: dict[str, dict[str, Any]] = {
    "a": {"title": "Dune", "year": 1965, "tags": ["sand"], "rating": 5},
    "b": {"title": "Emma", "year": 1815, "tags": [], "rating": 4},
    "c": {"title": "Solaris", "year": 1961, "tags": ["sea"], "rating": None},
}
FILTERS: list[dict[str, Any]] = [
    {"title": "Dune"}, {"year": {"$gt": 1900}}, {"year": {"$gte": 1815, "$lt": 1965}}, {"rating": {"$ne": 4}},
    {"tags": ["sea"]}, {"missing": None}, {"missing": 1}, {"rating": {"$eq": None}}, {"year": {"$lte": 1815}},
]  # fmt: skip


def plain(items: Any) -> set[tuple[Any, ...]]:
    return {(one.namespace, one.key, repr(one.value)) for one in items}


@pytest.mark.both_engines
async def test_it_agrees_with_langgraphs_own_store(store: Store) -> None:
    ours, theirs = PalaverStore(store), InMemoryStore()
    for one in (ours, theirs):
        for key, value in BOOKS.items():
            await one.aput(("books", "read"), key, value)
        await one.aput(("books", "un/read"), "d", {"title": "Ulysses"})
        await one.aput(("films",), "a", {"title": "Dune"})
        await one.aput(("books", "read"), "b", {**BOOKS["b"], "rating": 3})
        await one.adelete(("books", "read"), "c")
        await one.aput(("books", "read"), "c", BOOKS["c"])
    for options in ({}, {"max_depth": 1}, {"prefix": ("books", "*")}, {"suffix": ("read",)}, {"limit": 1, "offset": 1}):
        assert await ours.alist_namespaces(**options) == await theirs.alist_namespaces(**options)
    for asked in ((("books", "read"), "b"), (("books",), "b"), (("books", "read"), "none"), (("nowhere",), "x")):
        found, expected = await ours.aget(*asked), await theirs.aget(*asked)
        assert (found and (found.value, found.key, found.namespace)) == (
            expected and (expected.value, expected.key, expected.namespace)
        )
    for prefix in ((), ("books",), ("books", "read"), ("none",)):
        assert plain(await ours.asearch(prefix)) == plain(await theirs.asearch(prefix))
        for filter in FILTERS if prefix == ("books", "read") else ():  # elsewhere theirs fails on missing numbers
            assert plain(await ours.asearch(prefix, filter=filter)) == plain(
                await theirs.asearch(prefix, filter=filter)
            )
    await ours.adelete(("films",), "a")
    assert ("films",) not in await ours.alist_namespaces()


@pytest.mark.both_engines
async def test_times_and_pages(store: Store) -> None:
    items = PalaverStore(store)
    for number in range(5):
        await items.aput(("n",), str(number), {"n": number})
    first = await items.aget(("n",), "0")
    await items.aput(("n",), "0", {"n": 10})
    later = await items.aget(("n",), "0")
    assert first is not None
    assert later is not None
    assert later.created_at == first.created_at
    assert later.updated_at > first.updated_at
    pages = [[one.key for one in await items.asearch(("n",), limit=2, offset=start)] for start in (0, 2, 4)]
    assert pages == [["0", "4"], ["3", "2"], ["1"]]


@pytest.mark.both_engines
async def test_two_stores_see_each_other_and_nothing_deleted(store: Store) -> None:
    one, two = PalaverStore(store), PalaverStore(store)
    await one.aput(("n",), "k", {"v": "secret"})
    assert (await two.aget(("n",), "k")).value == {"v": "secret"}  # type: ignore[union-attr]
    await one.adelete(("n",), "k")
    assert await two.aget(("n",), "k") is None
    assert await two.asearch(("n",)) == []
    assert (await store.stats()).turns == 0
    results = await two.abatch(
        [PutOp(("n",), "k", {"v": 1}), GetOp(("n",), "k"), SearchOp(("n",)), PutOp(("n",), "k", {"v": 2})]
    )
    assert results == [None, None, [], None]
    assert (await one.aget(("n",), "k")).value == {"v": 2}  # type: ignore[union-attr]
    with pytest.raises(InvalidNamespaceError):
        await one.abatch([PutOp(("a.b",), "k", {})])


@pytest.mark.costly
async def test_search_by_meaning(tmp_path: Path) -> None:
    """With the embedder that is in the wheel, and no model."""
    async with palaver.open(url(tmp_path), embedder="local", worker=False) as store:
        items = PalaverStore(store, fields=["text"])
        texts = {"food": "I cannot eat peanuts", "dog": "My puppy is called Rex", "home": "We moved to Berlin in May"}
        for key, text in texts.items():
            await items.aput(("memories", "ada"), key, {"text": text, "private": "zebra"})
        await items.aput(("memories", "ada"), "hidden", {"text": "I keep a tortoise as a pet"}, index=False)
        await items.aput(("memories", "bob"), "cat", {"text": "My cat sleeps all day"})
        await store.settle()
        found = await items.asearch(("memories", "ada"), query="what animals do I have at home?", limit=2)
        assert found[0].key == "dog"
        assert found[0].score is not None
        assert {one.key for one in await items.asearch(("memories",), query="pets", limit=5)} == {
            *texts,
            "hidden",
            "cat",
        }
        only = await items.asearch(("memories", "ada"), query="allergies", filter={"text": texts["food"]})
        assert [one.key for one in only] == ["food"]
        talk = await store.find("langgraph-store/memories/ada")
        assert await talk.search("zebra") == []
        assert await talk.search("tortoise") == []


def test_synchronous_methods(tmp_path: Path) -> None:
    with palaver.sync.open(url(tmp_path)) as store:
        items = PalaverStore(store)
        items.put(("n",), "k", {"v": "\x00"})
        found = items.get(("n",), "k")
        assert found is not None
        assert found.value == {"v": "\x00"}
        assert [one.key for one in items.search(("n",))] == ["k"]
        assert items.list_namespaces() == [("n",)]
        items.delete(("n",), "k")
        assert items.list_namespaces() == []
