"""What schemathesis finds and is right: rules that the OpenAPI document cannot say, or that tools read otherwise.

Each exception names the answer that it is about, by the type of the problem and the place of the fault, and has one
sentence why. An answer that no exception names is a finding. At the end of a run each exception is printed with the
number of findings that it has taken.
"""

import atexit
import collections
import itertools
import re
import uuid

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

TAKEN = collections.Counter()

# A request that fits the document may have these answers, for a reason in the type of the problem itself.
TYPES = {
    "blocked-destination": "Where callbacks may go is a matter of the settings, of addresses and of the namespace.",
    "due-too-far": "How far away a moment may be depends on the present, and on the settings.",
    "idempotency-mismatch": "Which idempotency keys were used is a matter of earlier requests.",
    "zone-unknown": "Which time zones there are is a matter of the database of zones.",
}

# The same for faults of fields: the pointer to the field, the words of its fault, the reason.
FIELDS = [
    (
        r".*/callback/url",
        r"the URL cannot be read: .*",
        "A URI after RFC 3986 may be no URL that a client can call: `https://a:70000/` is one.",
    ),
    (
        r".*/callback/headers",
        r"the header .* is not permitted, or not valid",
        "The names of headers of the connection are in any case, and a pattern has no switch for that.",
    ),
    (
        r"/allowed_hosts/\d+",
        r"a host's name or address without a port; .*",
        "Which texts are hosts, also in other scripts, is in the URL standard and in no pattern.",
    ),
    (r"/cron", r".*", "The grammar of cron expressions is in no pattern."),
    (
        r"/end|/until",
        r"the end of the (schedule|range) is before its start",
        "A schema does not compare two fields.",
    ),
    (r"/from", r"the range begins in the future, .*", "Which moments are past depends on the present."),
    (
        r".*/policy/timeout_ms",
        r"a timeout is 100 to 30000 ms",
        "One policy serves callbacks and queues, of which queues have the longer timeout.",
    ),
    (
        r"/zone",
        r"a fixed period has neither a zone nor gaps",
        "What a change may say follows from the plan that is stored.",
    ),
    (r"/limit", r"the range has more than \d+ instants", "The instants of a range follow from the schedule."),
]

# A cursor is in the query, where faults have no pointers.
CURSORS = {"the cursor is of another list, or of none", "the cursor is none of this list"}
# Parts of a request that are too long although no text of them is.
TOGETHER = {
    "too long: the headers",
    "too long: the body",
    "the body is too large",
    "the headers have more than 8 KiB",
    "the path with the query has more than 8 KiB",
}


def problem(response):
    """The problem of an answer, by the last part of its type, with its faults of fields."""
    try:
        body = response.json()
    except ValueError:
        return None, "", []
    if not isinstance(body, dict):
        return None, "", []
    kind = str(body.get("type", "")).removeprefix("/problems/")
    return kind, body.get("detail", ""), [(e["pointer"], e["detail"]) for e in body.get("errors", [])]


def at(value, pointer):
    """The value at a pointer, None if there is none."""
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def texts(value):
    """All texts in a value, keys of objects too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from texts(name)
            yield from texts(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def reason_of_refusal(case, response):
    """Why a request that fits the document was refused nevertheless, None if no exception says so."""
    kind, detail, faults = problem(response)
    if kind in TYPES:
        return TYPES[kind]
    sent = [case.path_parameters, case.query, case.headers, case.body]
    is_too_long = kind == "too-large" or detail.startswith("the key of a schedule has 1 to 128 bytes")
    if is_too_long and any(not text.isascii() for part in sent for text in texts(part)):
        return "Lengths are bytes of UTF-8, and those of a schema are characters."
    if kind == "too-large" and detail.startswith("the namespace permits bodies"):
        return "What the bodies of a namespace may be is among its limits, which requests change."
    if kind == "too-large" and detail in TOGETHER:
        return "A schema limits each text, and not many of them together."
    if kind != "bad-request":
        return None
    if "cursor" in (case.query or {}) and detail in CURSORS:
        return "Only a list knows its cursors."
    if len(faults) != 1:
        return None
    pointer, words = faults[0]
    value = at(case.body, pointer)
    if isinstance(value, float) and value.is_integer() and "expected a whole number" in words:
        return "A schema takes 1.0 for a whole number, and many readers of JSON do not."
    if words.startswith("not a moment") and isinstance(value, str) and value.startswith("1970-01-01T"):
        return "The first hours of 1970 are before it by the offset, which a pattern does not add."
    for of_pointer, of_words, reason in FIELDS:
        if re.fullmatch(of_pointer, pointer) and re.fullmatch(of_words, words, re.DOTALL):
            return reason
    return None


def reason_of_acceptance(case, response):
    """Why a request that does not fit the document was fulfilled nevertheless, None if no exception says so."""
    if case.operation.path.endswith("/batch") and response.status_code == 200:
        results = response.json().get("results", [])
        problems = [result["problem"]["type"] for result in results if "problem" in result]
        # The key is looked at first.
        refusals = ("/problems/bad-request", "/problems/too-large", "/problems/idempotency-mismatch")
        if any(kind in refusals for kind in problems):
            return "A batch has the status 200, and a change that is refused has its problem in the results."
    return None


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if isinstance(failure, RejectedPositiveData):
        reason = reason_of_refusal(case, response)
    elif isinstance(failure, AcceptedNegativeData):
        reason = reason_of_acceptance(case, response)
    else:
        reason = None
    if reason is not None:
        TAKEN[reason] += 1
    return reason is None


REQUESTS = itertools.count()
# Texts whose grammar is in no pattern: those that are generated are of none.
WORDS = {
    "cron": itertools.cycle(["0 9 * * MON-FRI", "*/5 * * * *", "@daily", "0 0 4 1 1 *"]),
    "zone": itertools.cycle(["Europe/Zurich", "UTC", "America/New_York"]),
}


@schemathesis.hook
def before_call(context, case, kwargs):
    """Changes what would test nothing, to another value that fits the document as well."""
    is_positive = case.meta is not None and case.meta.generation.mode.is_positive
    body = case.body if isinstance(case.body, dict) else {}
    # A request that waits for timers of an empty queue: the wait is cut.
    wait = body.get("wait_ms")
    if isinstance(wait, int) and not isinstance(wait, bool) and 50 < wait <= 20_000:
        body["wait_ms"] = 50
    # One of ten is left as it is.
    if not is_positive or next(REQUESTS) % 10 == 0:
        return
    for name, words in WORDS.items():
        if isinstance(body.get(name), str):
            body[name] = next(words)
    # An idempotency key that another request had hides the answer to all else.
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())


@atexit.register
def print_taken():
    for reason, count in TAKEN.most_common():
        print(f"argued {count} times: {reason}")
