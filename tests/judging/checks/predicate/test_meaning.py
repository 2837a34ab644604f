import json
from typing import Any

import pytest

from delegate.judging.checks.predicate.evaluate import Outcome, evaluate

ORDER: dict[str, Any] = {
    "response": {"status": 200, "body": {"ok": True, "note": None}},
    "items": [{"id": 1, "price": 2.5, "tags": ["new"]}, {"id": 2, "price": 4, "tags": []}],
    "name": "Ada Lovelace",
    "count": 2,
    "face": "😀",
}

HOLD = """
response.status === 200 && response.body.ok === true
response.status == "200"
response.status !== 404 || false
response['status'] === 200
response.body.note === null
response.body.note ?? "none" === "none"
response.missing === undefined
response?.missing?.deep.er === undefined
typeof nobody === "undefined"
output.name === name
$.name === name
items.length === count
items[0].id === 1
items[1]?.price > items[0]?.price
items.every(item => item.price > 0)
items.some(({ tags }) => tags.includes("new"))
items.filter(i => i.tags.length).length === 1
items.map(i => i.id).join() === "1,2"
items.reduce((sum, i) => sum + i.price, 0) === 6.5
items.find(i => i.id === 2).price === 4
items.every((item, n, all) => all.findIndex(i => i.id === item.id) === n)
items.every(i => items.some(j => j.id >= i.id))
items.every(i => { return i.id > 0 })
items.every(name => name.id) && name.length === 12
items.map(i => i.price).sort((a, b) => b - a)[0] === 4
items.map(i => i.id).every(Number.isInteger)
Math.max(...items.map(i => i.price)) === 4
Object.keys(response).join() === "status,body"
Object.entries(response.body).length === 2
"status" in response && !("code" in response)
Array.isArray(items) && !Array.isArray(response)
name.split(" ").length === 2
name.toLowerCase().startsWith("ada")
/^\\w+ \\w+$/.test(name)
name.match(/[A-Z]/g).length === 2
name.replace(/\\s/g, "_") === "Ada_Lovelace"
`${name}: ${count}` === "Ada Lovelace: 2"
count > 1 ? name.length === 12 : false
count * 2 + 1 === 5 && count ** 3 === 8 && -count % 3 === -2
(0.1 + 0.2).toFixed(2) === "0.30"
face.length === 2 && [...face].length === 1
/(a*)*b/.test("aab") && !/((((a{1000}){1000}){1000}){1000})/.test(name)
name.match(/(\\w)+/)[1] === "a" && "a-b".split(/(-)/).length === 3
items.every(({ id, tags: [first] }, n) => id === n + 1 && (first ?? "new") === "new")
[1, 2, ...items].length === 4
{ a: count, ...response }.status === 200
response.status === 200 /* as agreed */ && // and
count === 2;
""".strip().replace("&& // and\ncount", "&& count")


@pytest.mark.parametrize("expression", HOLD.splitlines())
async def test_an_expression_holds_when_javascript_says_so(expression: str) -> None:
    assert (await evaluate(expression, ORDER)).holds


@pytest.mark.parametrize(
    "expression",
    ["false", "null", "undefined", "response.body.note", "response.missing", "!name", "!!0"],
)
async def test_false_and_what_is_not_there_do_not_hold(expression: str) -> None:
    assert not (await evaluate(expression, ORDER)).holds


async def test_whole_numbers_are_doubles_even_beyond_2_to_53() -> None:
    assert (await evaluate("a === b", json.loads('{"a": 9007199254740992, "b": 9007199254740993}'))).holds
    assert (await evaluate("a === Infinity", {"a": 10**400})).holds


@pytest.mark.parametrize("value", [[1, 2], "text", 5, None, True])
async def test_a_value_that_is_no_object_is_named_output(value: object) -> None:
    assert (await evaluate("typeof output === typeof $ && output !== undefined", value)).holds
    outcome = await evaluate("status === 200", value)
    assert outcome == Outcome(False, "there is no `status` in the output; the whole of it is named `output`")


async def test_data_cannot_take_the_place_of_a_builtin_or_of_the_whole_value() -> None:
    forged = {"output": {"status": 200}, "Math": {"max": 1}, "undefined": 5, "NaN": 1, "status": 500, "Object": {}}
    assert not (await evaluate("output.status === 200", forged)).holds
    assert (await evaluate("undefined === output.nothing && Math.max(1, 3) === 3 && NaN !== NaN", forged)).holds
    assert (await evaluate("output.output.status === 200 && Object.keys(output).length === 6", forged)).holds


async def test_a_key_may_have_any_name_even_one_that_javascript_inherits() -> None:
    data = {"constructor": 1, "__proto__": 2, "toString": 3, "length": 4, "filter": 5}
    assert (
        await evaluate("constructor + output.__proto__ + $['toString'] + length + output.filter === 15", data)
    ).holds


async def test_evaluation_changes_nothing_in_the_value() -> None:
    before = json.dumps(ORDER)
    assert (await evaluate("items.map(i => i.id).reverse().concat(items).sort((a, b) => 0).length === 4", ORDER)).holds
    assert json.dumps(ORDER) == before
