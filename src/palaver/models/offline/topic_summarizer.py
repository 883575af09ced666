"""Summaries without sentences: who wrote how much, about what. Pure.

Where retention removes the text of turns, the summary that stays must not quote them. A topic is a word of several
turns, a name is written with a capital inside a sentence. Anything that is said once stays out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaver.core.quotes import speaker_of
from palaver.memory.keywords import is_keyword, keywords, quotes, unlike
from palaver.model import Turn
from palaver.recall.terms import terms

NAME = "offline-topics-1"
MAX_READ = 40_000  # characters of a turn that are read
MOST = 12  # topics or names of one line

Count = Callable[[str], int]
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*")
_DATED = re.compile(r"\[\d{4}-\d{2}-\d{2}\] [^:]{1,80}: ")
_INNER_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class _Speaker:
    """The turns of one speaker."""

    prefix: str
    turns: tuple[Turn, ...]

    @property
    def texts(self) -> list[str]:
        return [turn.text[:MAX_READ] for turn in self.turns]

    def line(self, topics: Sequence[str], names: Sequence[str], said: Sequence[str]) -> str:
        """Return how many messages there were, and what they were about."""
        many = len(self.turns)
        parts = [f"{many} messages" if many > 1 else "1 message"]
        parts[0] += f" about {', '.join(unlike(topics, said))}" if topics else ""
        parts += [f"names: {', '.join(unlike(names, said))}"] if names else []
        tools = Counter(call.name for turn in self.turns for call in turn.tool_calls)
        parts += ["tools: " + ", ".join(f"{name} ({n})" for name, n in sorted(tools.items()))] if tools else []
        return "; ".join(parts)


def summarize(turns: Sequence[Turn], *, budget: int, count: Count) -> str:
    """Return a dated line for each speaker, within `budget`: the number of messages, topics, names and tools."""
    speakers = _speakers(turns)
    said = [turn.text[:MAX_READ] for turn in turns]
    for most in range(MOST, -1, -2):
        text = "\n".join(one.prefix + _safe_line(one, most, said) for one in speakers)
        if count(text) <= budget:
            return text
    first, last = turns[0].created, turns[-1].created
    return f"[{first:%Y-%m-%d}] {len(turns)} messages of {len(speakers)} speakers until {last:%Y-%m-%d}"


def without_sentences(text: str) -> str:
    """Return a summary that was made of sentences with the keywords of each line in their place."""
    lines = [line.partition(": ") if _DATED.match(line) else ("", "", line) for line in text.splitlines()]
    made = ((prefix + colon, keywords(body, MOST)) for prefix, colon, body in lines)
    return "\n".join(prefix + words for prefix, words in made if words) or f"[{len(lines)} lines]"


def _safe_line(speaker: _Speaker, most: int, said: Sequence[str]) -> str:
    line = speaker.line(_topics(speaker.texts)[:most], _names(speaker.texts)[:most], said)
    return speaker.line((), (), said) if quotes(line, said) else line


def _speakers(turns: Sequence[Turn]) -> list[_Speaker]:
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        if turn.role != "tool":
            found.setdefault(speaker_of(turn), []).append(turn)
    return [_Speaker(f"[{own[0].created:%Y-%m-%d}] {who}: ", tuple(own)) for who, own in found.items()]


def _topics(texts: Sequence[str]) -> list[str]:
    """Return the words that occur in several texts, the most frequent first; of their forms, the first one."""
    forms: dict[str, str] = {}
    frequency: Counter[str] = Counter()
    for text in texts:
        stems: set[str] = set()
        for word in _WORD.findall(text):
            stem = terms(word)[:1] if is_keyword(word) else []
            stems.update(stem)
            for one in stem:
                forms.setdefault(one, word.lower())
        frequency.update(stems)
    common = [stem for stem, n in frequency.items() if n > 1]
    return [forms[stem] for stem in sorted(common, key=lambda stem: (-frequency[stem], forms[stem]))]


def _names(texts: Sequence[str]) -> list[str]:
    """Return the names of things: words with a capital inside a sentence, the most frequent first."""
    found = Counter(name for text in texts for name in _INNER_NAME.findall(text) if is_keyword(name))
    return sorted(found, key=lambda name: (-found[name], name))
