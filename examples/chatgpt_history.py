"""Import your ChatGPT history and ask it questions, offline.

    pip install palaver
    python examples/chatgpt_history.py                                   # with a small sample export
    python examples/chatgpt_history.py export.zip "What did I decide about the flat?"

The export is the archive of ChatGPT's *Settings → Data controls → Export data*. The program does not change it. It
stores the conversations in chatgpt.db in the current folder. A second run adds new messages only.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import palaver.sync

TALKS = {
    "Flat in Lisbon": ["We decided to rent the flat in Graça.", "Good choice: quiet, and close to tram 28."],
    "Sourdough": ["My starter needs 12 hours in the fridge.", "Then start it the evening before."],
}
QUESTIONS = ("Which flat did we choose?", "How long does the starter rest?")


def make_export(path: Path) -> Path:
    """Write an archive in the format of ChatGPT's exports: a tree of messages for each conversation."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([make_talk(title, said) for title, said in TALKS.items()]))
    return path


def make_talk(title: str, said: list[str]) -> dict[str, object]:
    nodes: dict[str, object] = {"0": {"id": "0", "parent": None, "children": ["1"], "message": None}}
    for number, text in enumerate(said, start=1):
        role, following = ("user", "assistant")[(number - 1) % 2], [str(number + 1)] if number < len(said) else []
        content = {"content_type": "text", "parts": [text]}
        author = {"role": role, "name": None, "metadata": {}}
        message = {"id": f"{title}-{number}", "author": author, "create_time": 1.75e9 + number, "content": content}
        nodes[str(number)] = {"id": str(number), "parent": str(number - 1), "children": following, "message": message}
    times = {"create_time": 1.75e9, "update_time": 1.75e9 + 60}
    return {"id": title, "title": title, "mapping": nodes, "current_node": str(len(said)), **times}


def ask(database: str, questions: list[str]) -> None:
    with palaver.sync.open(database, user="me") as store:
        store.settle()  # wait for the vectors of all turns, so that recall also searches by meaning
        desk = store.conversation("questions")
        for question in questions:
            print(f"\n{question}")
            for hit in desk.recall(question, 2, scope="owner"):
                if hit.turn is not None:
                    print(f"  {hit.turn.created:%Y-%m-%d} {hit.turn.role}: {hit.turn.text[:200]}")


def main(arguments: list[str]) -> None:
    with TemporaryDirectory() as folder:
        export = Path(arguments[0]) if arguments else make_export(Path(folder, "export.zip"))
        command = [sys.executable, "-m", "palaver.cli", "--db", "chatgpt.db", "--user", "me", "import", str(export)]
        subprocess.run(command, check=True)
    ask("sqlite:///chatgpt.db", arguments[1:] or list(QUESTIONS))


if __name__ == "__main__":
    main(sys.argv[1:])
