from pathlib import Path

import pytest

from delegate.judging.checks.predicate import PredicateError, evaluate

VALUE = {"n": 3, "s": "text", "l": [1, 2], "o": {"k": 1}, "rows": [{"id": 1}]}

REFUSED = {
    # statements and everything that could change something or run on
    "while (true) {}": "while statement",
    "for (;;) {}": "for statement",
    "try { n } catch (e) {}": "try statement",
    "let x = 1": "declaration",
    "n = 4": "assignment",
    "n += 1": "assignment",
    "o.k = 2": "assignment",
    "n++": "assignment",
    "delete o.k": "`delete`",
    "void 0": "`void`",
    "n, s": "`,`",
    "n; s": "second statement",
    "{ }": "block",
    "if (n) s": "if statement",
    "throw n": "throw statement",
    "function f() { return f() }": "function declaration",
    "(function () { return 1 })()": "a call of",
    "(() => 1)()": "a call of",
    "() => 1": "arrow function",
    "class A {}": "`class`",
    "new Array(1e9).length": "`new`",
    "new Proxy({}, {})": "`new`",
    "new Function('return 1')": "`new`",
    "async () => 1": "arrow function",
    "l.map(async x => x)": "`async`",
    "l.map(await x)": "without an arrow function",
    "yield 1": "`yield`",
    "this": "`this`",
    "super.x": "`super`",
    "import('fs')": "a call of `import`",
    "import.meta": "`meta property`",
    "debugger": "debugger statement",
    "s`tag`": "tagged template",
    "l.map(x => { while (1) {} })": "while statement",
    "l.map(x => { return })": "return statement",
    "l.map((x = 1) => x)": "assignment pattern",
    "l.map((...x) => x)": "rest pattern",
    "l.map((x, x) => x)": "named twice",
    "l.map(Math => 1)": "parameter named `Math`",
    "({ f() { return 1 } })": "method definition",
    "({ get f() { return 1 } })": "method definition",
    "({ __proto__: o })": "`__proto__`",
    # ways to code
    "eval('1')": "a call of `eval`",
    "Function('return 1')()": "a call of",
    "require('fs')": "a call of `require`",
    "process.exit(0)": "`.exit()`",
    "globalThis.process.exit()": "`.exit()`",
    "setTimeout(() => 1)": "a call of `setTimeout`",
    "fetch('http://localhost')": "a call of `fetch`",
    "o.constructor": "`constructor`",
    "s.constructor.constructor('return 1')()": "a call of",
    "l['constructor']": "`constructor`",
    "o.__proto__": "`__proto__`",
    "l.map.call": "`map`",
    "s[`toString`]": "`toString`",
    "l.filter.constructor('1')": "`.constructor()`",
    "l['map'](x => x)": "a call of",
    "Object.assign(o, { k: 2 })": "a call of `Object.assign`",
    "Object.defineProperty(o, 'k', {})": "a call of",
    "Math.random() < 1": "a call of `Math.random`",
    "Date.now() > 0": "`.now()`",
    "Math": "`Math` as a value",
    "Math['max'](1)": "a call of",
    "l.push(1)": "`.push()`",
    "l.fill(0)": "`.fill()`",
    "s.repeat(1e9)": "`.repeat()`",
    "s.padEnd(1e9)": "`.padEnd()`",
    "l.sort()": "changes the array",
    "l.map(x => rows).map(r => r.sort())": "changes the array",
    "l.slice().sort(() => 1)": "contradicts itself",
    "l.slice().sort((a, b) => a > b)": "such as `a - b`",
    "l.reverse()": "changes the array",
    "l.forEach(x => x)": "`.forEach()`",
    "l.map(function (x) { return x })": "without an arrow function",
    "l.map(parseInt)": "without an arrow function",
    "l.map(n)": "without an arrow function",
    "l.includes(x => x)": "arrow function",
    "[x => x]": "arrow function",
    "Boolean": "`Boolean` as a value",
    # what JavaScript does with arrays and objects in place of primitives
    "l + 1 === '1,21'": "an array can't be used as a number",
    "o + '' === ''": "an object can't be used as text",
    "`${l}`": "an array can't be used as text",
    "l > 1": "an array can't be used as a number",
    "-o": "an object can't be used as a number",
    "l == '1,2'": "an array can't be used as a number",
    "String(o)": "an object can't be used as text",
    "[[1], [2]].join()": "an array can't be used as text",
    "o[l]": "an array can't be used as text",
    "l === l": "compares identity",
    "l.includes(o)": "the very same",
    "s.includes(undefined)": "can't look for undefined",
    "s.startsWith(null)": "can't look for null",
    "/undefined/.test(output.missing)": "not a text",
    # what would hold on anything
    "l !== []": "never equals anything",
    "o === {}": "never equals anything",
    "({}) != o": "never equals anything",
    "0 < n < 1": "`a < b && b < c`",
    "n === 3 === true": "comparison of a comparison",
    "l": "test its `.length`",
    "rows.filter(r => r.id > 5)": "test its `.length`",
    "n & 1": "did you mean `&&`",
    "n | 1": "did you mean `||`",
    "n >> 1": "the operator `>>`",
    "s instanceof String": "the operator `instanceof`",
    "~n": "`~`",
    # syntax
    "": "empty",
    "  // nothing": "empty",
    "n ===": "syntax error",
    "s === 'a\nb'": "syntax error",
    "n &&& s": "syntax error",
    "a b": "syntax error",
    "(n": "syntax error",
    "n) || (s": "syntax error",
    "n <!-- s": "assignment",
    "n\0 === 3": "syntax error",
    "-n ** 2": "`**`",
    "n ?? s || l": "`??`",
    "n || s ?? l": "without parentheses",
    "10n": "way to write a number",
    "017": "way to write a number",
    r"'\08'": "an escape",
    r"n\u0061me": "escape in a name",
    "[1, , 2]": "holes",
    "l.map(([, x]) => x)": "array pattern",
    # regular expressions
    "/a/": "`regex`",
    "s.match('a')": "without a regular expression",
    "s.match(n)": "without a regular expression",
    "/a/.exec(s)": "`.exec()`",
    "/a/y.test(s)": "flag `y`",
    r"/(a)\1/.test(s)": r"`\1`",
    r"/\p{L}/u.test(s)": r"`\p`",
    "/a++/.test(s)": "`+`",
    "/(?>a)/.test(s)": "not supported",
    "/(?R)/.test(s)": "not supported",
    "/(?:cat){e<=1}/.test(s)": "`{`",
    "/(a/.test(s)": "`(`",
    "/a)/.test(s)": "`)`",
    "/[b-a]/.test(s)": "`[b-a]`",
    "/a{2,1}/.test(s)": "`{2,1}`",
    "/(?<n>a)|(?<n>b)/.test(s)": "`(?<n>`",
    "s.replace(/e/, x => x)": "arrow function",
    "s.replace('e', '$&')": "without `$`",
}


@pytest.mark.parametrize(("expression", "named"), REFUSED.items())
async def test_what_is_not_known_is_refused_by_name(expression: str, named: str) -> None:
    with pytest.raises(PredicateError) as caught:
        await evaluate(expression, VALUE)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["true || new Date()", "n === 3 || eval('1')", "true ? 1 : l.push(1)", "1 ?? this"]
)
async def test_what_is_not_known_is_refused_where_it_would_not_run_too(expression: str) -> None:
    with pytest.raises(PredicateError):
        await evaluate(expression, VALUE)


async def test_an_error_says_where_in_characters() -> None:
    with pytest.raises(PredicateError, match=r"`new` is not allowed \(at character 15: `new Set\(l\)`\)"):
        await evaluate("'é😀' !== s && new Set(l).size === 1", VALUE)


NO_JSON: list[object] = [{1, 2}, {(1, 2): 2}, {"a": object()}, [b"x"], {"a": float("nan")}, {"a": Path()}]


@pytest.mark.parametrize("value", NO_JSON)
async def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(PredicateError, match="JSON"):
        await evaluate("output", value)
