"""A chat backend with FastAPI: two routes and a streamed answer. Each user sees their own conversations.

    pip install "palaver[server]"
    python examples/fastapi_backend.py           # serves on http://127.0.0.1:8000/docs
    python examples/fastapi_backend.py --try     # sends two messages to itself and exits (needs `pip install httpx2`)

No API key is needed: without a model, answers quote earlier turns. To use a model, pass model="openai:gpt-5" to
`palaver.open`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse

import palaver


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One store serves the whole process."""
    async with palaver.open("sqlite:///fastapi.db") as app.state.store:
        yield


app = FastAPI(lifespan=lifespan)


def signed_in_user(x_user: Annotated[str, Header()]) -> palaver.Scope:
    """Return the scope of the signed-in user. Replace this with your own login."""
    return palaver.Scope("default", x_user)


User = Annotated[palaver.Scope, Depends(signed_in_user)]


@app.post("/chats/{name}/messages")
async def answer(name: str, message: str, user: User) -> StreamingResponse:
    talk = await app.state.store.scoped(user).conversation(name)

    async def words() -> AsyncIterator[str]:
        async for event in talk.generate_stream(message):  # the question is stored before the first word arrives
            if isinstance(event, palaver.TextDelta):
                yield event.text

    return StreamingResponse(words(), media_type="text/plain; charset=utf-8")


@app.get("/chats/{name}")
async def history(name: str, user: User) -> list[dict[str, str]]:
    try:
        talk = await app.state.store.scoped(user).find(name)  # unlike `conversation`, never creates one
    except palaver.ConversationNotFound:
        raise HTTPException(404) from None
    return [{"role": turn.role, "text": turn.text} for turn in await talk.history()]


def try_it() -> None:
    from fastapi.testclient import TestClient

    with TestClient(app, headers={"X-User": "ada"}) as client:
        for message in ("I'm allergic to peanuts.", "What am I allergic to?"):
            print(client.post("/chats/dinner/messages", params={"message": message}).text)
        print(len(client.get("/chats/dinner").json()), "turns are stored")
        print(client.get("/chats/dinner", headers={"X-User": "bob"}).status_code, "is the status for bob")


if __name__ == "__main__":
    if "--try" in sys.argv:
        try_it()
    else:
        import uvicorn

        uvicorn.run(app, port=8000)
