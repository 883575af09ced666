"""Budgets in use: reserved before a call of a model, settled after it, and shared by all processes.

The counts are in the database. A reservation is counted at once, with the whole maximum of the answer; the end of the
call corrects it. If the process dies in between, the reservation stays counted: a budget is never exceeded by a crash.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from palaver.core.bounded_dict import BoundedDict
from palaver.core.budgets import (
    LIMITS,
    Amounts,
    BudgetDefaults,
    Payer,
    cost_in_units,
    max_output_of,
    period_end,
    period_name,
    shown,
    stored_limit,
)
from palaver.core.concurrency import run_uncancelled
from palaver.errors import (
    BudgetExceeded,
    CostBudgetExceeded,
    EngineError,
    PriceUnknown,
    StorageBudgetExceeded,
    StoreClosed,
)
from palaver.model import BudgetKind, BudgetLine, BudgetMeasure, BudgetPeriod
from palaver.models.prices import MILLION, Price
from palaver.models.response_accumulator import ModelResponse
from palaver.ports.budgets import Account, BudgetStore, Charge, Overrun
from palaver.ports.clock import Clock
from palaver.ports.models import ChatModel, JsonObject, Usage
from palaver.telemetry import Meter

FRESH_SECONDS = 5.0  # how old the stored limits of a tenant may be
MEASURED_SECONDS = 3_600.0  # how old a measurement of storage may be; what is added since is counted
REMEASURE_SECONDS = 10.0  # how often a full storage is measured again, because something may have been deleted
REMEMBERED = 10_000  # tenants and subjects
ANSWER_ROOM = 1_000_000  # bytes by which answers and results of tools may go over: they were paid for
CHARACTERS_PER_TOKEN = 2  # of an answer without a report of its usage: more tokens than it can have had
FREE = Price(input=0.0, output=0.0)
# The field with which each API limits an answer.
OUTPUT_FIELDS = {
    "openai-chat": "max_tokens",
    "openai-responses": "max_output_tokens",
    "anthropic-messages": "max_tokens",
}
OPENAI = "api.openai.com"  # its newer models want `max_completion_tokens`; compatible servers know the older name

Limits = dict[tuple[BudgetKind, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a model before it is made: its prompt in tokens, and the request that will be sent."""

    model: ChatModel
    price: Price | None
    prompt: int
    body: JsonObject


@dataclass(slots=True)
class Budgets:
    """The budgets of one database."""

    engine: BudgetStore
    clock: Clock
    defaults: BudgetDefaults = field(default_factory=BudgetDefaults)
    meter: Meter = field(default_factory=Meter)
    remeasure_seconds: float = REMEASURE_SECONDS
    is_on: bool = True  # not for a user who is signed in with a token: the database is not the application's
    _stored: BoundedDict[str, tuple[float, Limits]] = field(default_factory=lambda: BoundedDict(REMEMBERED))
    _measured: BoundedDict[tuple[str, str, str], float] = field(default_factory=lambda: BoundedDict(REMEMBERED))

    # ---- limits

    async def limits_of(self, payer: Payer) -> Limits:
        """Return the limits of everybody who pays: their own, or the defaults."""
        if not self.is_on:
            return {}
        stored, defaults = await self._stored_limits(payer.tenant), self.defaults.limits
        if not (stored or defaults):  # most tenants
            return {}
        found = {one: stored.get(one, defaults.get(one[0], {})) for one in payer.subjects()}
        return {one: limits for one, limits in found.items() if limits}

    async def _stored_limits(self, tenant: str) -> Limits:
        known = self._stored.get(tenant)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        found: Limits = {(one.kind, one.name): one.limits for one in await self.engine.budgets(tenant)}
        self._stored[tenant] = (time.monotonic(), found)
        return found

    def changed(self, tenant: str) -> None:
        """Read the limits of a tenant again before the next call."""
        self._stored.pop(tenant, None)

    # ---- calls of models

    async def check(self, payer: Payer, model: ChatModel, price: Price | None) -> None:
        """Raise if no call at all may be made now: before a question is stored. Nothing is counted."""
        limits = await self.limits_of(payer)
        self._require_price(limits, model, price)
        least = Amounts(requests=1, tokens=1, dollars=1 if (price or FREE).output else 0)
        charges = self._charges(limits, least)
        if not charges:
            return
        used = await self.engine.spent(payer.tenant, [one.account for one in charges])
        for charge in charges:
            over = charge.overrun(used.get(charge.account, Amounts()))
            if over is not None:
                raise self._refusal(over, charge)

    async def are_used_up(self, payer: Payer) -> bool:
        """Return whether no call at all may be made now, whatever the model."""
        charges = self._charges(await self.limits_of(payer), Amounts(requests=1, tokens=1, dollars=1))
        used = await self.engine.spent(payer.tenant, [one.account for one in charges]) if charges else {}
        return any(one.overrun(used.get(one.account, Amounts())) is not None for one in charges)

    async def take_embedding(self, payer: Payer, embedder: str, tokens: int, price: Price | None) -> None:
        """Count texts before they are embedded. The tokens are known then, so that nothing is settled later."""
        limits = await self.limits_of(payer)
        if price is None:
            self._refuse_money(limits, embedder)
        dollars = cost_in_units((price or FREE).input * tokens / MILLION)
        await self._spend(payer.tenant, self._charges(limits, Amounts(requests=1, tokens=tokens, dollars=dollars)))
        if limits:
            self.meter.spent(requests=1, tokens=tokens, dollars=shown("dollars", dollars))

    async def count_request(self, payer: Payer) -> None:
        """Count a call that an object of the application makes: nobody knows its tokens."""
        charges = self._charges(await self.limits_of(payer), Amounts(requests=1))
        if charges:
            await self.engine.spend(payer.tenant, [Charge(one.account, one.amounts) for one in charges])

    @asynccontextmanager
    async def reserved(
        self, payer: Payer, call: PlannedCall, response: Callable[[], ModelResponse]
    ) -> AsyncIterator[None]:
        """Reserve a call for the duration of the block, and settle it by what `response` then reports.

        Where tokens or money are limited, a request without a maximum gets one. Raises BudgetExceeded.
        """
        limits = await self.limits_of(payer)
        if not limits:
            yield
            return
        self._require_price(limits, call.model, call.price)
        if any(name.startswith(("tokens", "dollars")) for one in limits.values() for name in one):
            cap_output(call.model, call.body, self.defaults.output_tokens)
        estimate = _estimate(call, self.defaults.output_tokens)
        charges = self._charges(limits, estimate)
        await self._spend(payer.tenant, charges)
        try:
            yield
        finally:
            await run_uncancelled(self._settle(payer.tenant, charges, estimate, _settled(call, response())))

    async def _spend(self, tenant: str, charges: list[Charge]) -> None:
        over = await self.engine.spend(tenant, charges) if charges else None
        if over is not None:
            raise self._refusal(over, next(one for one in charges if one.account == over.account))

    async def _settle(self, tenant: str, charges: list[Charge], reserved: Amounts, real: Amounts) -> None:
        self.meter.spent(requests=real.requests, tokens=real.tokens, dollars=shown("dollars", real.dollars))
        change = real.minus(reserved)
        if change.is_zero:
            return
        # A database that cannot be reached or is closed leaves the whole reservation counted.
        with suppress(EngineError, StoreClosed):
            await self.engine.spend(tenant, [Charge(one.account, change) for one in charges])

    def _require_price(self, limits: Limits, model: ChatModel, price: Price | None) -> None:
        if price is None and model.adapter != "offline":
            self._refuse_money(limits, model.name)

    def _refuse_money(self, limits: Limits, model: str) -> None:
        """Refuse a model without a price where money is limited."""
        for (kind, _), one in limits.items():
            if any(name.startswith("dollars") for name in one):
                self.meter.refused(kind, "dollars")
                raise PriceUnknown(kind, model)

    def _charges(self, limits: Limits, amounts: Amounts) -> list[Charge]:
        """Return the charges of a call for the periods that have limits."""
        now, found = self.clock.now(), []
        periods: tuple[BudgetPeriod, ...] = ("day", "month")
        for (kind, name), one in limits.items():
            for period in periods:
                held = _limits_of_period(one, period)
                if held:
                    found.append(Charge(Account(kind, name, period_name(period, now)), amounts, held))
        return found

    def _refusal(self, over: Overrun, charge: Charge) -> BudgetExceeded:
        self.meter.refused(over.account.kind, over.measure)
        now = self.clock.now()
        period = period_of(over.account.period)
        end = period_end(period, now)
        errors: dict[BudgetMeasure, type[BudgetExceeded]] = {
            "dollars": CostBudgetExceeded,
            "bytes": StorageBudgetExceeded,
            "conversations": StorageBudgetExceeded,
        }
        return errors.get(over.measure, BudgetExceeded)(
            over.account.kind,
            over.measure,
            period,
            limit=shown(over.measure, charge.limits[over.measure]),
            used=shown(over.measure, over.used),
            retry_after=None if end is None else max(1.0, (end - now).total_seconds()),
        )

    # ---- storage

    async def take_room(self, payer: Payer, *, bytes: int = 0, conversations: int = 0, spare: int = 0) -> None:
        """Count bytes or conversations before they are stored. Raises StorageBudgetExceeded.

        `spare` bytes are allowed beyond the limit.
        """
        limits = await self.limits_of(payer)
        charges = [
            Charge(
                Account(kind, name, "total"),
                Amounts(bytes=bytes, conversations=conversations),
                {measure: one + (spare if measure == "bytes" else 0) for measure, one in held.items()},
            )
            for (kind, name), one in limits.items()
            if (held := _limits_of_period(one, "total"))
        ]
        if not charges:
            return
        await self._measure(payer.tenant, charges, MEASURED_SECONDS)
        over = await self.engine.spend(payer.tenant, charges)
        if over is not None and await self._measure(payer.tenant, charges, self.remeasure_seconds):
            over = await self.engine.spend(payer.tenant, charges)
        if over is not None:
            raise self._refusal(over, next(one for one in charges if one.account == over.account))

    async def add_bytes(self, payer: Payer, bytes: int) -> None:
        """Count bytes that are stored in any case: an answer that has begun."""
        limits = await self.limits_of(payer)
        added = Amounts(bytes=bytes)
        charges = [Charge(Account(*one, "total"), added) for one in limits if _limits_of_period(limits[one], "total")]
        if charges and bytes:
            await self.engine.spend(payer.tenant, charges)

    async def limits_storage(self, payer: Payer) -> bool:
        """Return whether a budget limits what may be stored."""
        return any(_limits_of_period(one, "total") for one in (await self.limits_of(payer)).values())

    async def limits_conversations(self, payer: Payer) -> bool:
        return any("conversations" in one for one in (await self.limits_of(payer)).values())

    async def _measure(self, tenant: str, charges: list[Charge], longest: float) -> bool:
        """Measure what is stored where that was longer ago. Keys count what was stored with them, deleted or not."""
        measured = False
        for account in (one.account for one in charges if one.account.kind != "key"):
            place = (tenant, account.kind, account.name)
            last = self._measured.get(place)
            if last is None or time.monotonic() - last > longest:
                await self.engine.measure_storage(tenant, account.kind, account.name)
                self._measured[place] = time.monotonic()
                measured = True
        return measured

    # ---- reports

    async def lines(self, payer: Payer) -> list[BudgetLine]:
        """Return every limit that applies to a payer, and how much of it is used."""
        now, limits = self.clock.now(), await self.limits_of(payer)
        totals = [
            Charge(Account(*one, "total"), Amounts()) for one in limits if _limits_of_period(limits[one], "total")
        ]
        await self._measure(payer.tenant, totals, self.remeasure_seconds)
        periods: tuple[BudgetPeriod, ...] = ("day", "month", "total")
        accounts = [Account(*one, period_name(period, now)) for one in limits for period in periods]
        used = await self.engine.spent(payer.tenant, accounts) if accounts else {}
        named = [(one, name) for one in limits for name in LIMITS if name in limits[one]]
        return [_line(one, name, limits[one][name], used, now) for one, name in named]


def _line(
    subject: tuple[BudgetKind, str], limit: str, value: float, used: Mapping[Account, Amounts], now: datetime
) -> BudgetLine:
    measure, period = LIMITS[limit]
    amounts = used.get(Account(*subject, period_name(period, now)), Amounts())
    return BudgetLine(
        kind=subject[0],
        name=subject[1],
        measure=measure,
        period=period,
        limit=value,
        used=shown(measure, getattr(amounts, measure)),
        resets_at=period_end(period, now),
    )


def period_of(name: str) -> BudgetPeriod:
    """Return the kind of a period by its stored name."""
    return "total" if name == "total" else "month" if len(name) == len("2026-11") else "day"


def _limits_of_period(limits: Mapping[str, float], period: BudgetPeriod) -> dict[BudgetMeasure, int]:
    return {LIMITS[name][0]: stored_limit(name, value) for name, value in limits.items() if LIMITS[name][1] == period}


# ---- one call ------------------------------------------------------------------------------------------------------


def cap_output(model: ChatModel, body: JsonObject, tokens: int) -> None:
    """Give a request without a maximum one, so that its reservation holds."""
    name = OUTPUT_FIELDS.get(model.adapter)
    if name is None or max_output_of(body) is not None:
        return
    is_openai = model.adapter == "openai-chat" and OPENAI in str(getattr(model, "project", ""))
    body["max_completion_tokens" if is_openai else name] = tokens


def _estimate(call: PlannedCall, output_tokens: int) -> Amounts:
    output = max_output_of(call.body) or output_tokens
    usage = Usage(prompt=call.prompt, completion=output)
    return Amounts(requests=1, tokens=call.prompt + output, dollars=_dollars(call.price, usage))


def _settled(call: PlannedCall, response: ModelResponse) -> Amounts:
    """Return what a call actually used. If the provider does not report it, it is estimated from the text."""
    usage = response.usage
    if usage.prompt is None and usage.completion is None:
        if response.first is None and response.id is None:
            return Amounts(requests=1)
        usage = Usage(prompt=call.prompt, completion=math.ceil(response.characters / CHARACTERS_PER_TOKEN))
    tokens = (usage.prompt or 0) + (usage.completion or 0)
    return Amounts(requests=1, tokens=tokens, dollars=_dollars(call.price, usage))


def _dollars(price: Price | None, usage: Usage) -> int:
    return cost_in_units((price or FREE).cost(usage) or 0.0)
