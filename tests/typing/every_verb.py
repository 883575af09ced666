"""Every method of a store, a conversation and a person, called as documented. A type checker must report nothing here.

`test_public_api.py` finds methods that are missing.
"""

from pathlib import Path

from palaver import Conversation, ErasureReceipt, Scope, Store, Subject, Turn


async def keep_a_store(store: Store, receipt: ErasureReceipt) -> None:
    talk = await store.conversation("support/42", owner="ada", title="Allergies")
    talk = await store.find("support/42", owner="ada")
    talk = await store.get(talk.id)
    print((await store.conversations(owner="ada", kind="talk", limit=10)).items, await store.search("peanuts", limit=5))
    answer: Turn = await store.generate(talk, "What can I eat?", model="offline")
    async for event in store.generate_stream(talk.id, "And for dinner?"):
        print(event)
    print(await store.requests(talk, 5, turn=answer), await store.usage(limit=5), await store.stats())
    await store.set_budget("user", "ada", tokens_per_day=10_000)
    print([line.left for line in await store.budgets(user="ada")])
    print(await store.audit(talk.id, limit=10), await store.expire(), await store.sweep(retention_minutes=60.0))
    receipt = await store.erase_user("ada")
    await store.check_erasure(receipt)
    async for records in talk.records():
        await store.restore(records, {})
    await store.settle()
    await keep_a_person(store.scoped(Scope("acme", "ada")).person("ada"))
    await keep_a_person((await store.signed_in("a token")).subject("project", "palaver"))
    await store.aclose()


async def keep_a_person(person: Subject) -> None:
    item = await person.remember("is allergic to peanuts", kind="fact")
    item = await person.correct(item, "is allergic to hazelnuts")
    await person.approve(item)
    print(await person.facts(kind="fact"), await person.fact_history(item), await person.proposals())
    print(await person.profile(token_budget=200), await person.recall("food", k=3), await person.learn())
    await person.consent(True)
    await person.share(readers=["bob"])
    print(await person.export(), await person.audit(limit=5), await person.verify())
    await person.drop(item)
    await person.forget()


async def write(talk: Conversation) -> None:
    turn = await talk.append("user", "I'm allergic to peanuts.")
    await talk.append_many([{"role": "user", "content": "hello"}])
    async with talk.stream("assistant", flush="end") as out:
        await out.write("Noted.")
    opened = await talk.append_open("assistant")
    await talk.append_chunk(opened, 0, "Noted.")
    await talk.append_renew(opened)
    await talk.append_commit(opened, finish_reason="stop")
    await talk.append_abort(await talk.append_open("assistant"))
    await talk.switch(turn)
    await talk.rename("Food")
    await talk.update(metadata={"plan": "pro"})
    await talk.reset()
    await talk.forget(turn)


async def read(talk: Conversation, turn: Turn) -> None:
    print(talk.id, talk.key, talk.info.title, await talk.refresh())
    print(await talk.history(20), await talk.turn(turn), await talk.search("peanuts", 5), await talk.branches(turn))
    print(await talk.audit(limit=10), await talk.verify(), await talk.requests(5))
    async for event in talk.subscribe(after=0):
        print(event.kind)


async def keep_files(talk: Conversation) -> None:
    file = await talk.attach(Path("cat.png"), media_type="image/png")
    upload = await talk.open_upload("cat.png", seconds=60)
    await talk.put_upload(upload, b"bytes")
    file = await talk.complete_upload(upload)
    print(await talk.attachments(10), await talk.attachment(file), (await talk.attachment_text(file)).text)
    print(await talk.read_attachment(file), await talk.read_attachment_range(file, 0, 10), await talk.data_url(file))


async def answer(talk: Conversation) -> None:
    print(await talk.build_context(4_000, message="What can I eat?"), await talk.recall("peanuts", 5))
    print((await talk.generate("What can I eat?")).text)
    async for event in talk.generate_stream("And for dinner?"):
        print(event)
    print(await talk.stop(), await talk.ask_to_stop())


async def remember(talk: Conversation) -> None:
    notes = await talk.remember("goals", "Eat well")
    notes = await talk.correct("goals", 0, "Eat better")
    notes = await talk.drop_note("goals", 0)
    print(
        notes.goals, await talk.working_memory(), await talk.summaries(), await talk.summarize(), await talk.compact()
    )
    for fact in await talk.extract_facts():
        print(await talk.correct_fact(fact, "ada is allergic to hazelnuts"), await talk.forget_fact(fact))
    print(await talk.facts(include_invalidated=True))
