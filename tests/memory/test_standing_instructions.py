"""Standing instructions and preferences, and stories that only sound like one.

The two tables were written before the rules. The mistakes of the rules are listed by name, so that the figures in
the documentation are the figures of these tables.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.memory.standing_instructions import MAX_TEXT, Standing, sentences, standing

INSTRUCTIONS = """
Always answer in French.
Always include the source when you give me a number.
Please always use metric units.
Never use emojis in your replies.
Please never share my address with anyone.
From now on, answer in bullet points.
From now on please call the project "Heron".
Going forward, send me only the diff.
In future, ask before you delete anything.
Whenever I ask about Python, show me a runnable example.
Whenever I mention a book, give me the author as well.
When I ask about dosage, always cite the leaflet.
If I ask about the weather, use Celsius.
Every time I paste a log, start with the first error.
Please don't ever apologise.
Don't mention my ex-husband again.
Do not use tables.
Don't suggest recipes with pork.
Please don't call me sir.
Stop calling me "buddy".
Stop using exclamation marks, please.
Call me Sam.
You can call me Dr. Okafor.
Please call me Lena instead of Magdalena.
Just call me Mo.
Address me as Captain.
Refer to me with they/them pronouns.
Keep your answers short.
Keep it brief from now on.
Keep responses under 100 words.
Use metric units.
Use British spelling throughout.
Use a formal tone with me.
Only use Python 3.11 features.
Only reply in Spanish, please.
Reply in German.
Respond in plain text, no markdown.
Write in the second person from here on.
Speak to me like I'm five.
Be concise.
Be more direct with me.
Avoid jargon.
Avoid recommending paid tools.
Make sure you always double-check the arithmetic.
Make sure to include unit tests whenever you write code.
You should always ask me before booking.
You must never reveal the surprise party to Tom.
I want you to always explain your reasoning.
I'd like you to remind me about my medication every evening.
I need you to keep everything confidential.
I'd rather you didn't use my full name.
I'd rather you ask me first.
I would prefer it if you gave me the short version first.
Remember to convert all prices to euros.
Remember that all amounts are in Swiss francs.
Treat every file under legacy/ as read-only.
For all future answers, cite the paper.
As a rule, put the conclusion first.
By default, assume I'm on a Mac.
Each time you write SQL, use lower-case keywords.
No emojis please.
No more bullet points, please.
Don't forget to always sign off with my initials.
Let's keep the tone casual from now on.
Can you always give me three options?
Could you please stop asking me follow-up questions?
Hi! Thanks for the help yesterday. From now on, please write dates as YYYY-MM-DD.
""".strip().splitlines()

PREFERENCES = """
I prefer tea over coffee.
I prefer window seats.
I'd prefer short meetings in the morning.
I usually prefer dark mode.
I much prefer phone calls to e-mail.
My name is Priya.
My name's Jonas, by the way.
My pronouns are she/her.
Remember that I have a dog named Biscuit.
Remember, I don't eat meat.
Please remember that I'm in Tokyo time.
Keep in mind that I work night shifts.
Keep in mind I'm a beginner.
Note that I can't use the stairs.
Bear in mind that I'm colour-blind.
I'm allergic to peanuts.
I am severely allergic to penicillin.
I have a peanut allergy.
I'm lactose intolerant.
I'm vegetarian.
I am a vegan.
I don't eat gluten.
I don't drink alcohol.
I can't eat shellfish.
I'm colour-blind.
I'm diabetic.
My favourite colour is green.
My favorite language is Rust.
I like my answers brief.
I like my code heavily commented.
My preferred airline is KLM.
My time zone is Europe/Zurich.
I go by Alex.
I speak only Portuguese.
I don't like long explanations.
I hate it when you apologise.
I love it when you use analogies.
""".strip().splitlines()

BASE_NEGATIVES = """
I always loved the sea.
He said never again.
We always went to the lake.
I've never been to Paris.
You always make me laugh.
You never know what will happen.
I never thought I'd say this.
She always calls me on Sundays.
It never rains here in July.
My mother always said to be careful.
Never mind.
Never mind, I found it.
I was never good at maths.
Always a pleasure talking to you!
As always, thanks for your help.
It's always been a dream of mine.
There's always tomorrow.
Why do cats always land on their feet?
Should I always use a virtual environment?
Do you always answer this quickly?
What does "always on" mean?
Is it true that you should never wake a sleepwalker?
They always use metric units in Europe.
The function must never return null.
The server always answers in JSON.
The user asked: always answer in French.
From now on she lives in Berlin.
From now on I'm going to exercise every day.
From now on we will meet on Tuesdays.
I told him to stop calling me.
He wanted me to keep it short.
They told me to never give up.
My boss wants me to always be available.
Whenever I go to the gym, I feel better.
Whenever I ask my kids about school, they shrug.
Whenever it rains, the roof leaks.
Every time I paste code into Word it breaks.
When I asked about the price, he laughed.
If I ask my landlord, will he fix it?
Call me crazy, but I liked the old logo.
Call me when you get there, she said.
Call me later!
He used to call me Sam.
She calls me Sam.
My brother's name is Tom.
Her name is Anna.
My name is on the list.
What is my name?
Don't worry about it.
Don't you think that's odd?
Don't get me wrong, I like him.
I don't know what to do.
Please don't go, I begged her.
Do not disturb signs are ignored here.
Use your imagination!
Use of force was not justified.
Keep up the good work!
Keep going.
Keep me posted!
Be right back.
Be careful out there.
Be there at five.
Write a poem about autumn.
Write a function that always returns true.
Reply to this e-mail for me: ...
Translate this sentence into French.
Answer the question below.
Give me three options.
Make sure the door is closed, I told the kids.
Remember when we went to Rome?
Remember the time he fell off the boat?
Do you remember that I told you about Sam?
I remember that I was nervous.
I can't remember that.
I prefer not to think about last year's accident, it was awful.
Which one do you prefer?
Do you prefer tea or coffee?
My sister prefers tea.
My sister is allergic to cats.
Is she allergic to nuts?
How do I know if I'm allergic to pollen?
My dad is vegetarian.
Are you vegetarian?
I like that idea.
I love this song!
I'd rather die than go back there.
I would rather not go to the party tonight.
I'd like you to meet my brother someday.
I want you to know that I appreciate it.
I need you to understand how hard that was.
Stop it, you're making me blush!
We stopped calling each other years ago.
Stop signs are red.
No problem, thanks!
No more excuses, I'm going to the gym.
Only you would say that!
Only three people came.
Avoiding sugar has been hard.
I avoid jargon when I write.
Note that the test failed on line 3.
You can call this function from anywhere.
You should always wear a helmet, my coach says.
The doctor said I should never skip a dose.
By default, Python uses UTF-8.
As a rule of thumb it takes two hours.
In future years the price will rise.
Each time she wrote, I smiled.
Let's keep in touch!
I keep my answers short in interviews.
My favourite part was the ending.
My favorite memory of the trip is the sunset.
I don't like it here.
I don't drink and drive, officer, I swear.
I hate it when my train is late.
""".strip().splitlines()

# Written after the first rules and run once before any change: 15 of 40 and 17 of 30 found, 2 and 12 false alarms. Then
# the rules were changed.
SECOND_POSITIVES = """
Please write all code comments in English.
When you quote me a price, add VAT.
Never send me anything longer than a page.
I go by Chris, not Christopher.
You don't need to say sorry every time.
Any time I share a draft, point out the weakest paragraph first.
Use 24-hour time.
I'm on a low-sodium diet.
I hate cilantro.
I live in Lisbon, so give prices in euros.
Always assume I have no budget for paid software.
Please address me as Ms. Tanaka.
Answer me in Italian from now on.
I only eat halal.
Do not bring up politics.
Please refrain from using emojis.
Skip the disclaimers.
I'd appreciate it if you kept things short.
Be blunt with me.
Don't sugarcoat things.
From now on, no more than three sentences per answer.
Going forward please CC Dana on every draft.
I never want to see pie charts.
My daughter's name is Ines, please use it in the stories.
I'm dyslexic, so short paragraphs help.
Remember I'm left-handed.
You're to speak only Spanish with me.
For code, I prefer tabs.
Please stick to the metric system.
Whenever you're unsure, say so.
Give me the answer first and the explanation after, always.
If I say "status", list the open tasks.
Please ask before making assumptions.
I am intolerant to lactose.
I can't have caffeine after noon.
Write everything in lowercase from here on.
Never recommend Amazon.
Don't use my last name.
I want all your replies in table form.
Let's speak French from now on.
Could you always cite page numbers?
Refer to my company as Northwind, not NW.
I don't want any emojis in the emails you draft.
Please double-space your paragraphs from now on.
Never book flights before 9 am for me.
I'm gluten-free.
Please keep all of this between us.
Going forward, treat me as an expert.
My preferred language is Dutch.
Whenever I send a photo, describe it for me, I'm blind.
Don't ever delete files without asking.
Don't use abbreviations, I never understand them.
Just so you know, I'm allergic to latex.
I'd rather you used first names.
I prefer aisle seats on long flights.
Speak to me in Catalan.
Please be brief.
Always sign my letters "J. Moreau".
Hey, quick thing: call me Bea.
Never, ever use Comic Sans.
Round every figure to two decimals.
In this chat, always use Celsius.
Please talk to me like a friend, not a customer.
Note that I'm colour blind when you pick chart colours.
I need answers I can read in under a minute.
Every answer should end with a question.
Your answers should be short.
You talk too much, be shorter.
All dates should be ISO 8601.
I use they/them pronouns.
""".strip().splitlines()

SECOND_NEGATIVES = """
Never have I ever seen such a mess.
Always look on the bright side of life!
I always forget my keys.
She never answers in French.
My teacher told us to always show our work.
When I ask for directions in Rome nobody understands me.
You never told me about your trip.
I used to prefer tea.
Which units does NASA use?
Use the stairs if the lift is broken.
Keep the change!
Don't you dare!
Don't cry.
Remember me?
Remember: the meeting is at 5.
I'm allergic to Mondays.
We've decided to go vegan next year.
I'm not vegetarian.
If I were vegan, I'd miss cheese.
Be my guest.
Stop the car!
I can't eat another bite.
I don't drink enough water.
Write me a short story about a dog who never barks.
Please answer the following question.
Can you call me a taxi?
Could you write an email to my boss?
Would you ever use a dating app?
My favorite show got cancelled.
No code review today.
Please summarize this article.
Only Ana answered.
Avoid the tollway, there is an accident.
My name was misspelled on the ticket.
In future we might move to Spain.
Every time you smile I melt.
Call me Ishmael is the first line of Moby Dick.
Tell me a joke.
Explain recursion to me like I'm five.
Make sure you get some rest!
Never again will I eat there.
He never uses emojis.
I always use metric units at work.
I'd like you to write a poem.
Please keep reading.
Keep it up!
Always great to hear from you.
We never use Comic Sans at the office.
You should never have told him.
I was allergic to cats as a child.
Don't tell me it's raining again.
Don't be sad.
Don't forget to call mum!
Stop worrying so much.
Stop by whenever you like.
Please give me a summary of chapter 3.
Use this code to log in.
Write it in the notebook, she whispered.
I prefer the second one you showed me.
I never drink when I'm working out, he claimed.
Whenever you have time, tell me about your day.
If you say so, I believe you.
When you reply, I feel heard.
My favorite teacher retired yesterday.
Remember to breathe!
Make sure you tell your mom I said hi.
Avoid at all costs.
No comment.
Is there a rule to never mix bleach and ammonia?
Only answer matters.
""".strip().splitlines()

# Written after the last rule, and never tuned on.
HELD_OUT_POSITIVES = """
Please always spell my name with two n's.
Don't give me medical advice.
Use the passive voice sparingly in your replies.
From now on I want you to challenge my assumptions.
I prefer examples to theory.
My name is Wei, nice to meet you.
I'm allergic to bee stings, by the way.
Never suggest meat dishes.
Call me Professor.
Keep explanations simple.
If I ask for code, give only the code.
Please don't use Oxford commas.
I'd like you to always show the units.
Remember that I'm training for a marathon.
You must always check the stock level before you quote a date.
Every time I mention Paul, I mean Paul Jansen.
Let's stick to English.
No spoilers please.
Please use simple words.
I don't eat fish.
Also, going forward, put the total at the top.
Tell me when you are not sure, always.
I hate long intros.
Respond to me in rhymes.
Do not share this with my manager.
""".strip().splitlines()

HELD_OUT_NEGATIVES = """
I never use Facebook anymore.
My dog is never happy when it rains.
Never in my life have I laughed so hard.
It's as good as it's always been.
I always wanted to learn the piano.
Please help me with my homework.
Can you explain how vaccines work?
Don't you love autumn?
They prefer to meet on Fridays.
I preferred the old version.
We should never forget what happened.
My grandmother's name was Rosa.
Whenever I hear that song, I cry.
He asked me to call him Bob.
Use cases for Redis include caching.
Make me a packing list.
Remind me, what did we decide?
Answer: 42.
I hate Mondays.
You're always so kind.
Keep in touch!
When I was vegan I missed cheese.
I'd prefer to talk tomorrow if that's ok.
Please book a table for two.
I want you to win!
""".strip().splitlines()

POSITIVES = INSTRUCTIONS + PREFERENCES + SECOND_POSITIVES + HELD_OUT_POSITIVES
NEGATIVES = [*BASE_NEGATIVES, *SECOND_NEGATIVES, *HELD_OUT_NEGATIVES]

KNOWN_MISSES = {
    "Any time I share a draft, point out the weakest paragraph first.",
    "I hate cilantro.",
    "I live in Lisbon, so give prices in euros.",
    "My daughter's name is Ines, please use it in the stories.",
    "I need answers I can read in under a minute.",
    "You talk too much, be shorter.",
    "Every time I mention Paul, I mean Paul Jansen.",
    "No spoilers please.",
    "I hate long intros.",
}
KNOWN_FALSE_ALARMS = {"I'd prefer to talk tomorrow if that's ok."}


def test_finds_every_wish_of_the_table_except_the_known_misses() -> None:
    assert {text for text in POSITIVES if not standing(text)} == KNOWN_MISSES


def test_leaves_every_story_of_the_table_alone_except_the_known_false_alarms() -> None:
    assert {text for text in NEGATIVES if standing(text)} == KNOWN_FALSE_ALARMS


def test_says_whether_it_is_an_instruction_or_a_preference() -> None:
    assert {text for text in INSTRUCTIONS if standing(text)[0].kind != "instruction"} == set()
    assert {text for text in PREFERENCES if standing(text)[0].kind != "preference"} == set()


def test_precision_and_recall_on_what_was_never_tuned_on() -> None:
    found = sum(bool(standing(text)) for text in HELD_OUT_POSITIVES)
    false = sum(bool(standing(text)) for text in HELD_OUT_NEGATIVES)
    assert found / (found + false) >= 0.95
    assert found / len(HELD_OUT_POSITIVES) >= 0.88


def test_returns_the_sentence_and_not_the_text_around_it() -> None:
    text = "Thanks for yesterday! Always answer in French. What is the capital of Peru?"
    assert standing(text) == [Standing("instruction", "Always answer in French.")]


def test_keeps_what_was_stated_before_a_question() -> None:
    assert standing("I prefer short reports, can you help me with this one?") == [
        Standing("preference", "I prefer short reports")
    ]


def test_the_same_wish_twice_is_one() -> None:
    assert len(standing("Use metric units. use metric units.\nUse metric units.")) == 1


@pytest.mark.parametrize(
    "text",
    ["> Always answer in French.", "```\nAlways answer in French.\n```", "She wrote:\n> Never use tables.\nFunny, no?"],
)
def test_quoted_lines_and_code_are_not_the_users_words(text: str) -> None:
    assert standing(text) == []


def test_a_list_of_wishes_is_read_line_by_line() -> None:
    found = standing("Some rules:\n- Always cite sources\n- Never use tables\n1. Call me Dr. Okafor")
    assert [wish.text for wish in found] == ["Always cite sources", "Never use tables", "Call me Dr. Okafor"]


def test_typographic_apostrophes_are_apostrophes() -> None:
    assert standing("Don’t use emojis.")
    assert standing("I’m allergic to nuts.")


def test_of_a_sentence_without_end_only_the_wish_is_kept() -> None:
    found = standing("I was thinking about the trip " * 20 + ", and please never book a night train.")
    assert found == [Standing("instruction", "never book a night train.")]


def test_a_huge_text_is_read_at_both_ends_and_quickly() -> None:
    text = "Always answer in French. " + "word " * 1_000_000 + "\nNever use tables."
    began = time.perf_counter()
    assert [wish.text for wish in standing(text)] == ["Always answer in French.", "Never use tables."]
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "text", ["a, and " * 5_000, "always " * 5_000, "if i ask " * 3_000, "- " * 10_000, "keep the " * 3_000]
)
def test_no_text_makes_the_rules_slow(text: str) -> None:
    began = time.perf_counter()
    standing(text)
    assert time.perf_counter() - began < 5


@given(st.text())
def test_takes_any_text_and_stays_within_its_limit(text: str) -> None:
    for wish in standing(text):
        assert 0 < len(wish.text) <= MAX_TEXT
        assert "\n" not in wish.text


def test_a_text_of_marks_takes_time_in_proportion_to_its_length() -> None:
    """Tried from each of its marks, this text would take hours."""
    assert list(sentences("Wait" + "." * 500_000 + '"' * 500_000)) == ["Wait" + "." * 500_000 + '"' * 500_000]
    assert list(sentences('One...") Two?! Three.')) == ['One...")', "Two?!", "Three."]
