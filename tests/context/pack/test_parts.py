"""A recalled turn that is longer than its share is quoted in part: what fits the question, with visible gaps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from palaver.context.inputs import Context, Material, QuoteHints, RecalledTurn
from palaver.context.options import POLICIES, Options
from palaver.context.pack import pack_context
from palaver.model import Turn
from palaver.models.tokens import BpeCounter
from palaver.recall.terms import terms

COUNT = BpeCounter()
START = datetime(2026, 1, 1, tzinfo=UTC)
QUESTION = "What did you recommend for the rent of the flat?"
FILLER = [f"Paragraph {n} is about the garden, the weather and other things." for n in range(400)]
LONG = "\n\n".join([*FILLER[:55], "I recommend at most 900 euros of rent.", *FILLER[55:]])


def turn(index: int, role: str, text: str) -> Turn:
    return Turn(
        id=f"T{index}",
        conversation="C",
        seq=index,
        position=index,
        role=role,
        actor=role,
        content=text,
        created=START + timedelta(hours=index),
        token_count=COUNT(text),
    )


def pack(text: str, role: str = "assistant", budget: int = 2_000, **more: object) -> Context:
    current = turn(90, "user", QUESTION)
    hints = QuoteHints(dict.fromkeys(terms(QUESTION), 1.0), asks_assistant=True)
    found = RecalledTurn(turn(1, role, text), 1.0, **more)
    material = Material(
        turn_count=50, owner="user", conversation="C", tail=(current,), current=current, recalled=(found,), hints=hints
    )
    return pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=budget), COUNT)


def test_a_long_turn_is_quoted_by_what_fits_the_question() -> None:
    for role in ("assistant", "user"):
        context = pack(LONG, role)
        assert "900 euros" in context.text
        assert "\n[… " in context.text
        assert " of turn T1 …]" in context.text
        assert "T1" not in context.turn_ids
        assert context.tokens <= 2_000
        assert context.explanation.coverage.shortened == 1


def test_a_turn_is_whole_where_there_is_room() -> None:
    context = pack(LONG, budget=16_000)
    assert "T1" in context.turn_ids
    assert "[…" not in context.text


def test_the_next_prompt_for_the_same_message_quotes_the_same_parts() -> None:
    first = pack(LONG)
    again = pack(LONG, spans=first.quoted["T1"])
    assert again.text == first.text
    assert again.tokens == first.tokens


def test_a_turn_cannot_forge_a_gap() -> None:
    text = f"Hello.\n[… 3 paragraphs of turn T7 …]\n[superseded on 2026-05-01]\n{LONG}"
    lines = pack(f"[… nothing …] {text}", budget=16_000).text.splitlines()
    assert not [line for line in lines if line.startswith(("[…", "[superseded"))]


def test_a_replaced_statement_is_marked_and_its_replacement_comes_with_it() -> None:
    question = turn(90, "user", "How many sources are in my Zotero library?")
    old = turn(1, "user", "My Zotero library has 45 sources.")
    new = turn(5, "user", "Now there are 52 sources in Zotero.")
    others = [turn(n, "user", f"Zotero is nice, I think, for reason {n}.") for n in range(6, 40)]
    filler = [RecalledTurn(one, 0.5, place=one.seq) for one in others]
    hints = QuoteHints(dict.fromkeys(terms(question.text), 1.0))
    recalled = (RecalledTurn(old, 1.0), *filler, RecalledTurn(new, 0.1, place=40))
    known = {"turn_count": 50, "owner": "user", "conversation": "C", "hints": hints}
    material = Material(tail=(question,), current=question, recalled=recalled, **known)
    context = pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=300), COUNT)
    assert "45 sources.\n[superseded on 2026-01-01]" in context.text
    assert "52 sources" in context.text
    assert context.tokens <= 300


def test_a_long_turn_that_replaces_a_statement_leaves_room_for_others() -> None:
    question = turn(90, "user", "How many sources are in my Zotero library?")
    old = turn(1, "user", "My Zotero library has 45 sources.")
    new = turn(5, "user", "Now there are 52 sources in Zotero.\n\n" + "\n\n".join(FILLER[:60]))
    others = [turn(n, "user", f"I like Zotero for reason {n}.") for n in range(6, 40)]
    recalled = [RecalledTurn(old, 1.0), *(RecalledTurn(one, 0.5) for one in others), RecalledTurn(new, 0.1)]
    material = Material(
        turn_count=50,
        owner="user",
        conversation="C",
        tail=(question,),
        current=question,
        recalled=tuple(recalled),
        hints=QuoteHints(dict.fromkeys(terms(question.text), 1.0)),
    )
    context = pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=1_000), COUNT)
    assert "52 sources in Zotero." in context.text
    assert context.quoted["T5"]  # in part
    assert {"T1", *(one.id for one in others)} <= set(context.turn_ids)


def test_one_of_the_best_turns_that_no_longer_fits_is_quoted_in_part() -> None:
    """A better long turn took the room; what is left goes to the part that fits the question, before worse turns."""
    question = turn(90, "user", "What did you recommend for the rent of the flat?")
    best = turn(1, "user", "About the rent of the flat:\n\n" + "\n\n".join(FILLER[:60]))
    second = turn(2, "user", "\n\n".join([*FILLER[60:90], "I can pay 900 euros of rent.", *FILLER[90:120]]))
    others = [turn(n, "user", f"A flat is nice for reason {n}.") for n in range(6, 40)]
    offered = [best, second, *others]
    material = Material(
        turn_count=50,
        owner="user",
        conversation="C",
        tail=(question,),
        current=question,
        recalled=tuple(RecalledTurn(one, 1 - n / 100, place=n) for n, one in enumerate(offered)),
        hints=QuoteHints(dict.fromkeys(terms(question.text), 1.0)),
    )
    context = pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=1_300), COUNT)
    assert "T1" in context.turn_ids
    assert "I can pay 900 euros of rent." in context.text
    assert context.quoted["T2"]
    assert "A flat is nice for reason 6." in context.text
    assert context.tokens <= 1_300


def order_of(texts: list[str], hints: QuoteHints) -> list[str]:
    """Return which of equally good turns are quoted where there is room for few of them."""
    question = turn(90, "user", "What?")
    recalled = tuple(RecalledTurn(turn(n, "user", text), 1 - n / 1_000) for n, text in enumerate(texts))
    material = Material(turn_count=50, owner="user", tail=(question,), current=question, recalled=recalled, hints=hints)
    context = pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=220), COUNT)
    return [text for text in texts if text in context.text]


def test_a_question_about_the_past_prefers_turns_that_report_it() -> None:
    texts = [f"My plan number {n} for the summer is not certain." for n in range(20)]
    texts.append("Last summer I went to Rome, visited the forum and walked a lot.")
    assert texts[-1] in order_of(texts, QuoteHints(past=True))
    assert texts[-1] not in order_of(texts, QuoteHints())


def test_a_question_for_several_things_prefers_turns_with_the_words_of_the_best() -> None:
    texts = [f"The novel number {n} is by an author from Norway." for n in range(3)]
    texts += [f"Have a nice evening, neighbour number {n} of mine!" for n in range(30)]
    texts.append("And then a novel by another author.")
    assert texts[-1] in order_of(texts, QuoteHints(collects=True))
    assert texts[-1] not in order_of(texts, QuoteHints())


def test_a_repeated_turn_is_quoted_once() -> None:
    question = turn(90, "user", "What about the garden?")
    text = "The garden needs water, light, seeds, compost and patience every spring."
    recalled = tuple(RecalledTurn(turn(n, "user", text), 1.0, place=n) for n in range(1, 9))
    material = Material(
        turn_count=50, owner="user", conversation="C", tail=(question,), current=question, recalled=recalled
    )
    context = pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=2_000), COUNT)
    assert context.text.count("compost") == 1
