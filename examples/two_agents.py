"""Two agents and two people in one conversation: each agent has its own instructions, model and view of the thread.

    pip install palaver
    python examples/two_agents.py

The models are scripted, so that it runs without an API key. To use real ones, write "openai:gpt-5" or "anthropic:…".
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import palaver
from palaver.testing import ScriptedModel

MODELS = {
    "plans": ScriptedModel(["Take the night train on Friday.", "Then the bus on Thursday: two changes."], name="plans"),
    "doubts": ScriptedModel(["The night train is sold out on Fridays."], name="doubts"),
}
AGENTS = {
    "planner": palaver.Agent(instructions="You plan trips.", model="plans"),
    "critic": palaver.Agent(instructions="You look for mistakes.", model="doubts", sees=["ada", "planner", "critic"]),
}
SCOPE = palaver.Scope("default", "ada").with_rights("act_for")  # this program also writes what bob says


async def main(folder: Path) -> None:
    async with palaver.open(f"sqlite:///{folder}/trips.db", scope=SCOPE, models=MODELS, agents=AGENTS) as store:
        talk = await store.conversation("trip", participants=["bob"])
        await talk.generate("How do we get to Rome?", agent="planner")  # ada asks, the planner answers
        await talk.generate(agent="critic")  # the critic answers the planner
        await talk.append("user", "I'd rather not fly.", actor="bob")  # another person speaks
        await talk.generate(agent="planner")  # the planner answers them both
        for turn in await talk.history():
            print(f"{turn.actor}: {turn.text}")
        seen = await talk.build_context(1_000, viewer="critic")
        print("\nThe critic would read:\n" + seen.text)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
