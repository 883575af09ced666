"""Fill the budget: from what was read to a context that fits. Pure.

`assemble.pack_context` calls the steps in order: the question and its answer so far, memory, the recent window,
summaries, recalled turns. Each step takes a ledger and returns a new one.
"""

from __future__ import annotations

from palaver.context.pack.assemble import pack_context as pack_context
from palaver.context.pack.budget import WITHOUT_RECALL as WITHOUT_RECALL
from palaver.context.pack.recalled import Candidate as Candidate
from palaver.context.pack.recalled import longest_turn as longest_turn
from palaver.context.pack.recalled import pick as pick
from palaver.context.pack.summaries import covering_summaries as covering_summaries
