"""Anthropic's memory tool over note files.

    pip install "palaver[anthropic]"
    python examples/anthropic_memory.py

It runs without a model: the program sends the commands that a model would send.
"""

import palaver
from palaver.adapters.anthropic_memory import PalaverMemoryTool

with palaver.sync.open("sqlite:///notes.db") as store:
    tool = PalaverMemoryTool(store, "person", "ada")  # give it to client.beta.messages.tool_runner(tools=[tool], …)
    for command in (
        {"command": "create", "path": "/memories/food.md", "file_text": "Ada is allergic to peanuts.\n"},
        {"command": "str_replace", "path": "/memories/food.md", "old_str": "peanuts", "new_str": "walnuts"},
        {"command": "view", "path": "/memories/food.md"},
    ):
        print(tool.call(command))
