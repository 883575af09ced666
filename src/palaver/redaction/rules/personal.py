"""Rules for e-mail addresses, IP addresses and phone numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

from palaver.redaction.findings import EMAIL, IP, PHONE
from palaver.redaction.rules.rule import Check, Rule, Span, ascii_pattern, check_text, digits_of, follows, is_anything
from palaver.redaction.rules.words import CALLS, COUNTED, CURRENCIES, PHONES, SPACES, VERSIONS, any_of

_LOCAL = r"A-Za-z0-9._%+\u00c0-\u024f-"
_LABEL = r"[A-Za-z0-9\u00c0-\u024f][A-Za-z0-9\u00c0-\u024f-]{0,62}"
_URL_LOGIN = re.compile(r"//[^\s:/@]{0,64}:$")
_SSH_PATH = re.compile(r":[\w~.-]{1,64}/")


def _check_email(match: re.Match[str]) -> Span | None:
    """Accept an address, but not the login of a URL, whose password has a rule of its own, nor a Git remote."""
    if follows(match, _URL_LOGIN, match.start(), reach=80) or _SSH_PATH.match(match.string, match.end()):
        return None
    return match.span()


_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# "version 1.2.3.4", "the version is 1.2.3.4", "kernel 5.15.0.91".
_VERSION_BEFORE = re.compile(
    rf"(?<![a-zA-Z])(?:{any_of(VERSIONS)})s?(?:\s(?:is|was|now|of|number|no|ist|est|es|è))?[\s.:=#]{{0,4}}$",
    re.IGNORECASE,
)
# Loopback, "any", masks and multicast: the same on every machine, so they say nothing about one.
_NOBODY = re.compile(r"(?:127|0|22[4-9]|23\d|255)\.")


def _check_ipv4(match: re.Match[str]) -> Span | None:
    if _NOBODY.match(match[0]) or follows(match, _VERSION_BEFORE, match.start()):
        return None
    return match.span()


def _is_ipv6(text: str) -> bool:
    """Return whether it is an address with a digit, and not `::1`: `abc::def` is more likely a name in a program."""
    if text.count(":") < 2 or not any(letter.isdigit() for letter in text):
        return False
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return False
    return not address.is_loopback


_APART = r"(?<![\w.,:/+-])"
_SEPARATOR = rf"[{SPACES}().\-/–]"
_GAP = rf"[{SPACES}.-]"
_PHONE_WORD = (
    rf"(?<![a-zA-Z])(?:{any_of((*PHONES, *CALLS))})(?:[\s.:;,#'’-]{{0,3}}[^\W\d_]{{1,12}}){{0,3}}?[\s.:#]{{0,3}}"
)
_CALLING_CODES = re.compile(
    r"1[2-9]\d\d[2-9]\d{6}$|7\d{10}$"
    r"|(?:2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58])[1-9(0]\d{6,11}$"
    r"|(?:2[1-689]\d|3[578]\d|42[0-3]|50\d|59\d|6[789]\d|80[08]|85\d|88\d|96\d|97\d|99\d)\d{5,10}$"
)
_COUNTED_BEFORE = re.compile(
    rf"(?:(?<![a-zA-Z])(?:{any_of((*COUNTED, *VERSIONS))})[a-z]{{0,12}}\W{{0,4}}(?:[^\W\d_]{{1,12}}\W{{1,3}}){{0,2}}"
    rf"|[$€£¥]\s?|(?<![a-zA-Z])(?:{any_of(CURRENCIES)})\s)$",
    re.IGNORECASE,
)
_PHONE_BEFORE = re.compile(rf"(?<![a-zA-Z])(?:{any_of(PHONES)})[^\d\n]{{0,12}}$", re.IGNORECASE)
_COUNTED_AFTER = re.compile(
    rf"\s?(?:[€$£¥%]|(?:{any_of(CURRENCIES)}|euros?|dollars?|pounds|million|people|views)(?![a-z]))|[.,:/-]\d",
    re.IGNORECASE,
)
_DATE = re.compile(r"\(?(?:\d{1,2}[./-]\d{1,2}[./-]\d{4}|(?:19|20)\d\d[./ -](?:19|20|0|1[0-2]))")
_UNBROKEN = re.compile(r"0[67]\d{8}|07\d{9}|0800\d{6,7}")
_GROUPS = re.compile(r"\d+")


def _is_counted(match: re.Match[str], span: Span) -> bool:
    """Return whether the text around the digits shows that they are a price, a date, an order or a version."""
    if _COUNTED_AFTER.match(match.string, span[1]) or _DATE.match(match.string, span[0]):
        return True
    return follows(match, _COUNTED_BEFORE, span[0]) and not follows(match, _PHONE_BEFORE, span[0])


def _check_phone(test: Callable[[str], bool]) -> Check:
    """Return a check for a number that passes the test and is not a price, a date, an order or a version."""

    def check(match: re.Match[str]) -> Span | None:
        start, end = match.span("value" if "value" in match.re.groupindex else 0)
        while match.string[end - 1] in " ().-/":
            end -= 1
        return (start, end) if test(match.string[start:end]) and not _is_counted(match, (start, end)) else None

    return check


def _is_international(text: str) -> bool:
    number = digits_of(text).removeprefix("00") if text.startswith("00") else digits_of(text.replace("(0)", ""))
    return bool(_CALLING_CODES.match(number)) and len(number) <= 15


def _is_national(text: str) -> bool:
    """Return whether a number with a leading zero is grouped like a phone number, or has the form of a mobile."""
    groups = _GROUPS.findall(text)
    if len(groups) == 1:
        return bool(_UNBROKEN.fullmatch(text))
    if groups[0] == "0" and not text.startswith("("):
        return False
    return len(groups) <= 6 and all(len(group) > 1 for group in groups[1:]) and not text.startswith(("00", "(00"))


def _is_announced(text: str) -> bool:
    """Return whether digits after a word such as "call" are 7 to 13, and not years."""
    return 7 <= len(digits_of(text)) <= 13 and not re.fullmatch(r"(?:(?:19|20)\d\d[ -]?)+", text)


PERSONAL_DATA = (
    Rule(
        EMAIL,
        ascii_pattern(
            rf"(?<![{_LOCAL}])(?:[{_LOCAL}]{{1,32}}')?[{_LOCAL}]{{1,64}}+@",
            rf"(?:{_LABEL}\.){{1,6}}[A-Za-z]{{2,24}}(?![\w@])",
        ),
        _check_email,
        words=("@",),
    ),
    Rule(
        IP,
        ascii_pattern(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.[a-z\d]|-\w)"),
        _check_ipv4,
        figures=4,
        begins="number",
    ),
    Rule(
        IP,
        ascii_pattern(rf"(?<![\w:.])[0-9A-Fa-f:]{{3,39}}+(?:(?<=:){_OCTET}(?:\.{_OCTET}){{3}})?(?![\w:])"),
        check_text(_is_ipv6),
        figures=1,
        words=(":",),
    ),
    Rule(
        PHONE,
        ascii_pattern(rf"(?<![\w+])(?:\+|00){_SEPARATOR}?\d(?:{_SEPARATOR}{{0,3}}\d){{6,14}}(?!\w)"),
        _check_phone(_is_international),
        figures=7,
        begins="number",
    ),
    Rule(
        PHONE,
        ascii_pattern(_APART, rf"(?<!\d )\(?0(?:{_SEPARATOR}{{0,2}}\d){{8,11}}(?! ?\d)(?!\w)"),
        _check_phone(_is_national),
        figures=9,
        begins="number",
    ),
    Rule(
        PHONE,  # US
        ascii_pattern(_APART, r"(?:1[ .-])?(?:\([2-9][0-8]\d\) ?|[2-9][0-8]\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-])"),
        _check_phone(is_anything),
        figures=10,
        begins="number",
    ),
    Rule(
        PHONE,  # RU
        ascii_pattern(_APART, r"8[ -]?\(?\d{3}\)?[ -]\d{3}-\d\d-\d\d(?!\w)"),
        _check_phone(is_anything),
        figures=11,
        begins="number",
    ),
    Rule(
        PHONE,
        ascii_pattern(_APART, r"[679]\d\d \d\d \d\d \d\d(?!\w)"),
        _check_phone(is_anything),
        figures=9,
        begins="number",
    ),  # ES
    Rule(
        PHONE,  # BR: an area code of two digits, and nine digits that begin with 9
        ascii_pattern(_APART, rf"(?:\([1-9]\d\)|[1-9]\d){_GAP}?9\d{{4}}{_GAP}\d{{4}}(?!\w)"),
        _check_phone(is_anything),
        figures=11,
        begins="number",
    ),
    Rule(
        PHONE,  # CN: eleven digits that begin with 13 to 19
        ascii_pattern(_APART, rf"1[3-9]\d(?:{_GAP}\d{{4}}{_GAP}\d{{4}}|\d{{8}})(?![\w.,:-]?\d)(?!\w)"),
        _check_phone(is_anything),
        figures=11,
        begins="number",
    ),
    Rule(
        PHONE,  # IT: a prefix of 3xx, and seven digits
        ascii_pattern(_APART, rf"3[2-9]\d{_GAP}\d{{3}}{_GAP}?\d{{4}}(?!{_GAP}?\d)(?!\w)"),
        _check_phone(is_anything),
        figures=10,
        begins="number",
    ),
    Rule(
        PHONE,  # IN: five and five digits that begin with 6 to 9
        ascii_pattern(_APART, rf"[6-9]\d{{4}}{_GAP}\d{{5}}(?!{_GAP}?\d)(?!\w)"),
        _check_phone(is_anything),
        figures=10,
        begins="number",
    ),
    Rule(
        PHONE,
        re.compile(
            rf"{_PHONE_WORD}(?P<value>\(?[0-9](?:{_SEPARATOR}{{0,2}}[0-9]){{6,12}})(?! ?[0-9])(?![A-Za-z0-9_])",
            re.IGNORECASE,
        ),
        _check_phone(_is_announced),
        figures=7,
        words=(*PHONES, *CALLS),
        begins="word",
    ),
)
