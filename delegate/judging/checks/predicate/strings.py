"""The methods of strings, numbers and booleans. A call has already paid for the length of its string."""

from decimal import ROUND_HALF_UP, Context, Decimal

from delegate.judging.checks.predicate.arguments import Args, Method, clamped, integer, item_at, needle, relative
from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.patterns import Pattern
from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.text import SPACE, points, units
from delegate.judging.checks.predicate.values import UNDEFINED, Js, number_text, to_text, truthy


def _at(budget: Budget, this: str, args: Args) -> Js:
    return item_at(this, integer(args, 0, 0, "at"))


def _char_at(budget: Budget, this: str, args: Args) -> Js:
    place = integer(args, 0, 0, "charAt")
    return this[int(place)] if 0 <= place < len(this) else ""


def _concat(budget: Budget, this: str, args: Args) -> Js:
    texts = [this, *(to_text(value) for value in args)]
    budget.make_string(sum(map(len, texts)))
    return "".join(texts)


def _ends_with(budget: Budget, this: str, args: Args) -> Js:
    return this.endswith(needle(args, "endsWith"), 0, clamped(integer(args, 1, len(this), "endsWith"), len(this)))


def _includes(budget: Budget, this: str, args: Args) -> Js:
    return this.find(needle(args, "includes"), clamped(integer(args, 1, 0, "includes"), len(this))) >= 0


def _index_of(budget: Budget, this: str, args: Args) -> Js:
    return float(this.find(needle(args, "indexOf"), clamped(integer(args, 1, 0, "indexOf"), len(this))))


def _last_index_of(budget: Budget, this: str, args: Args) -> Js:
    return float(this.rfind(needle(args, "lastIndexOf")))


def _lower(budget: Budget, this: str, args: Args) -> Js:
    budget.make_string(3 * len(this))
    return units(points(this).lower())


def _upper(budget: Budget, this: str, args: Args) -> Js:
    budget.make_string(3 * len(this))
    return units(points(this).upper())


def _slice(budget: Budget, this: str, args: Args) -> Js:
    start = relative(integer(args, 0, 0, "slice"), len(this))
    return this[start : relative(integer(args, 1, len(this), "slice"), len(this))]


def _starts_with(budget: Budget, this: str, args: Args) -> Js:
    return this.startswith(needle(args, "startsWith"), clamped(integer(args, 1, 0, "startsWith"), len(this)))


def _substring(budget: Budget, this: str, args: Args) -> Js:
    start = clamped(integer(args, 0, 0, "substring"), len(this))
    end = clamped(integer(args, 1, len(this), "substring"), len(this))
    return this[min(start, end) : max(start, end)]


def _split(budget: Budget, this: str, args: Args) -> Js:
    limit = integer(args, 1, len(this) + 1, "split")
    if limit < 0:
        raise PredicateError("`.split()` needs a limit of 0 or more")
    if not args or args[0] is UNDEFINED:
        parts: list[Js] = [this]
    elif isinstance(args[0], Pattern):
        parts = _split_by(budget, this, args[0])
    else:
        separator = needle(args, "split")
        budget.spend(this.count(separator))
        parts = [*this.split(separator)] if separator else [*this]
    return parts[: clamped(limit, len(parts))]


def _split_by(budget: Budget, this: str, pattern: Pattern) -> list[Js]:
    parts: list[Js] = []
    text, start = points(this) if "u" in pattern.flags else this, 0
    for match in pattern.find_all(this, budget):
        if match.end() == match.start() or match.groups():
            raise PredicateError(f"`.split(/{pattern.source}/)` with groups or empty matches is not supported")
        parts.append(units(text[start : match.start()]))
        start = match.end()
    return [*parts, units(text[start:])]


def _match(budget: Budget, this: str, args: Args) -> Js:
    pattern: Pattern = args[0]
    if pattern.is_global:
        found: list[Js] = [units(match[0]) for match in pattern.find_all(this, budget)]
        return found or None
    if pattern.loses_captures:
        raise PredicateError(f"`.match(/{pattern.source}/)` with a group that repeats is not supported; see `.test`")
    match = pattern.search(this, budget)
    if match is None:
        return None
    return [UNDEFINED if group is None else units(group) for group in (match[0], *match.groups())]


def _search(budget: Budget, this: str, args: Args) -> Js:
    pattern: Pattern = args[0]
    match = pattern.search(this, budget)
    if match is None:
        return -1.0
    return float(len(units(points(this)[: match.start()])) if "u" in pattern.flags else match.start())


def _replace(budget: Budget, this: str, args: Args) -> Js:
    if isinstance(args[0], Pattern):
        return _replace_by(budget, this, args[0], _replacement(args))
    return this.replace(needle(args, "replace"), _fitting(budget, this, 1, _replacement(args)), 1)


def _replace_all(budget: Budget, this: str, args: Args) -> Js:
    new = _replacement(args)
    if isinstance(args[0], Pattern):
        if not args[0].is_global:
            raise Thrown("`.replaceAll()` needs a regular expression with the flag `g`")
        return _replace_by(budget, this, args[0], new)
    old = needle(args, "replaceAll")
    return this.replace(old, _fitting(budget, this, this.count(old), new))


def _replace_by(budget: Budget, this: str, pattern: Pattern, new: str) -> str:
    parts: list[str] = []
    text, start = points(this) if "u" in pattern.flags else this, 0
    for match in pattern.find_all(this, budget):
        parts += units(text[start : match.start()]), _fitting(budget, this, len(parts) // 2 + 1, new)
        start = match.end()
        if not pattern.is_global:
            break
    return "".join(parts) + units(text[start:])


def _replacement(args: Args) -> str:
    new = args[1]
    if not isinstance(new, str) or "$" in new:
        raise PredicateError("a replacement has to be a string without `$`")
    return new


def _fitting(budget: Budget, this: str, times: int, new: str) -> str:
    budget.make_string(len(this) + times * len(new))
    return new


STRING = {
    "at": Method(_at, 1, 1),
    "charAt": Method(_char_at, 0, 1),
    "concat": Method(_concat, 0, 100),
    "endsWith": Method(_ends_with, 1, 2),
    "includes": Method(_includes, 1, 2),
    "indexOf": Method(_index_of, 1, 2),
    "lastIndexOf": Method(_last_index_of, 1, 1),
    "match": Method(_match, 1, 1, "pattern"),
    "replace": Method(_replace, 2, 2, "maybe_pattern"),
    "replaceAll": Method(_replace_all, 2, 2, "maybe_pattern"),
    "search": Method(_search, 1, 1, "pattern"),
    "slice": Method(_slice, 0, 2),
    "split": Method(_split, 0, 2, "maybe_pattern"),
    "startsWith": Method(_starts_with, 1, 2),
    "substring": Method(_substring, 1, 2),
    "toLowerCase": Method(_lower, 0, 0),
    "toString": Method(lambda budget, this, args: this, 0, 0),
    "toUpperCase": Method(_upper, 0, 0),
    "trim": Method(lambda budget, this, args: this.strip(SPACE), 0, 0),
    "trimEnd": Method(lambda budget, this, args: this.rstrip(SPACE), 0, 0),
    "trimStart": Method(lambda budget, this, args: this.lstrip(SPACE), 0, 0),
}


def _to_fixed(budget: Budget, this: float, args: Args) -> Js:
    digits = integer(args, 0, 0, "toFixed")
    if not 0 <= digits <= 100:
        raise Thrown("`.toFixed()` takes 0 to 100 digits")
    if not abs(this) < 1e21:
        return number_text(this)
    # Of the exact binary value, and a tie goes up: ECMA-262 §21.1.3.3.
    rounded = Decimal(abs(this)).quantize(Decimal(1).scaleb(-int(digits)), ROUND_HALF_UP, Context(prec=150))
    return f"{'-' if this < 0 else ''}{rounded:f}"


NUMBER = {
    "toFixed": Method(_to_fixed, 0, 1),
    "toString": Method(lambda budget, this, args: number_text(this), 0, 0),
}
BOOLEAN = {"toString": Method(lambda budget, this, args: "true" if truthy(this) else "false", 0, 0)}
