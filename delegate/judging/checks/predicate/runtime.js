// What a compiled expression calls. The engine evaluates; the guards here refuse what can't be seen in the source:
// reading what a value inherits, using an array or an object as a number or text, looking for what isn't text.
"use strict";

const CUT = Symbol("an optional chain that ended early");
const MAX_ALTERNATIVES = 4, MAX_VALUE_CHARS = 100, MAX_ITEMS = 8, MAX_SHOWN_DEPTH = 3;

// Of the expression that is being evaluated: the JSON that it is about, as text and as a value; its parts; by part, the
// last value that it had, and the index that `every` reached in it.
let input, whole, nodes, seen, places;

// The two ways to end without a value: the expression can't be decided, or JavaScript would throw on this value.
const refuse = (message) => { throw { refused: message }; };
const fail = (message) => { throw { thrown: message }; };

function setInput(text) {
  input = text;
}

function run(parts, expression, conclude = outcome) {
  [nodes, whole, seen, places] = [parts, JSON.parse(input), [], []];
  try {
    return JSON.stringify(conclude(expression()));
  } catch (problem) {
    if (problem instanceof TypeError) return JSON.stringify({ thrown: `JavaScript throws: ${problem.message}` });
    if (problem?.refused || problem?.thrown) return JSON.stringify(problem);
    throw problem; // a limit of the engine
  } finally {
    input = nodes = whole = seen = places = undefined;
  }
}

function outcome(value) {
  const root = nodes.length - 1;
  if (Array.isArray(value)) {
    refuse("the expression gives an array, which counts as true even when empty; test its `.length`");
  }
  return { holds: Boolean(value), reason: value ? `${source(root)} → true` : explain(root) };
}

function keep(id, value) {
  seen[id] = value;
  return value;
}

// ---------------------------------------------------------------------------------------------------------- values

const isObject = (value) => typeof value === "object" && value !== null;
const isRecord = (value) => isObject(value) && !Array.isArray(value);

function kind(value) {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? "an array" : isObject(value) ? "an object" : `a ${typeof value}`;
}

// Every conversion of an object or array that JavaScript makes on its own comes by here.
Object.defineProperty(Object.prototype, Symbol.toPrimitive, {
  value(hint) {
    if (this instanceof Error) return this.toString();
    const hints = Array.isArray(this) ? " (see `.join`)" : "";
    return refuse(`${kind(this)} can't be used as ${hint === "string" ? `text${hints}` : "a number"}`);
  },
});

function same(left, right) {
  if (!isObject(left) || !isObject(right)) return left === right;
  return refuse(`${kind(left)} compared with ${kind(right)}: JavaScript compares identity, not content;`
    + " compare elements, `.length` or `.join()`");
}

function equal(left, right) {
  return isObject(left) && isObject(right) ? same(left, right) : left == right;
}

function plus(left, right) {
  return typeof left === "string" || typeof right === "string" ? `${left}${right}` : left + right;
}

function has(key, value, id) {
  if (!isObject(value)) fail(`\`${source(id)}\` is ${kind(value)}, so \`in\` can't look into it`);
  own(value, key, source(id));
  return Object.hasOwn(value, key);
}

function items(id, value) {
  if (Array.isArray(value) || typeof value === "string") return value;
  return fail(`\`${source(id)}\` is ${kind(value)}, so it can't be spread`);
}

function fields(id, value) {
  if (value == null || isRecord(value)) return value;
  return refuse(`\`...${source(id)}\`: ${kind(value)} can't be spread into an object`);
}

// ------------------------------------------------------------------------------------------------ names, properties

const known = (name) => isRecord(whole) && Object.hasOwn(whole, name) ? whole[name] : undefined;

function field(name) {
  if (isRecord(whole) && Object.hasOwn(whole, name)) return whole[name];
  const there = isRecord(whole) ? `it has: ${names(whole)}` : `it is ${kind(whole)}, named \`output\``;
  return fail(`there is no \`${name}\` in the output; ${there}`);
}

function prop(id, of, key, optional) {
  if (of === CUT || (optional && of == null)) return CUT;
  if (typeof key === "function") key = `${key()}`;
  return of == null ? missing(id, of, key) : own(of, key, source(id));
}

function own(value, key, written) {
  const isData = isRecord(value) ? Object.hasOwn(value, key) : key === "length" || /^\d+$/.test(key);
  if (!isData && key in Object(value)) refuse(`\`${key}\` of ${kind(value)} (\`${written}\`) is not data`);
  return value[key];
}

function missing(id, of, key) {
  return fail(`\`${source(id)}\` is ${kind(of)}${siblings(id, of)}, so it has no \`${key}\``);
}

// Where a part reads a property that isn't there: what is there instead.
function siblings(id, value) {
  const [type, , of] = nodes[id];
  if (type === "chain") return siblings(of, value);
  const isMissing = type === "member" && value === undefined && isRecord(seen[of]);
  return isMissing ? ` (\`${source(of)}\` has: ${names(seen[of])})` : "";
}

function end(value) {
  return value === CUT ? undefined : value;
}

// What a pattern such as `{ key }` or `[first]` takes from a parameter.
function take(pattern, of, key) {
  if (of == null) fail(`\`${pattern}\` can't be taken from ${kind(of)}`);
  if (typeof key === "number" && !Array.isArray(of)) refuse(`\`${pattern}\` can't be taken from ${kind(of)}`);
  return own(of, key, pattern);
}

// ----------------------------------------------------------------------------------------------------------- calls

// By the letters of `builtins.py`: whether an argument is of that kind, and what is said where it isn't.
const any = [() => true];
const CHECKS = {
  f: any, p: any, v: any,
  c: [(value) => typeof value === "function", "takes a function, not"],
  d: [(value) => typeof value === "string" || typeof value === "number", "can't look for"],
  i: [(value) => value === undefined || typeof value === "number", "needs a number, not"],
  o: [isObject, "needs an object, not"],
  q: [(value) => value instanceof RegExp || CHECKS.d[0](value), "can't look for"],
  r: [(value) => typeof value === "string" && !value.includes("$"), "needs a string without `$` to put in, not"],
  w: [(value) => !isObject(value), "finds only the very same object, so it can't look for"],
};

function checked(name, [least, most, letters], values) {
  if (values.length < least || values.length > most) {
    refuse(`\`${name}()\` takes ${least === most ? least : `${least} to ${most}`} arguments, not ${values.length}`);
  }
  values.forEach((value, n) => {
    const [fits, message] = CHECKS[letters[Math.min(n, letters.length - 1)]];
    if ((n < least || value !== undefined) && !fits(value)) refuse(`\`${name}()\` ${message} ${kind(value)}`);
  });
  return values;
}

function builtin(name, signature, run) {
  return (...values) => {
    if (signature[2][0] === "o" && values.length && values[0] == null) fail(`\`${name}\` of ${kind(values[0])}`);
    return run(...checked(name, signature, values));
  };
}

function test(id, pattern, value) {
  if (typeof value === "string" || typeof value === "number") return pattern.test(value);
  return refuse(`\`${source(id)}\` is ${kind(value)}, not a text to test`);
}

function call(id, of, method, signatures, values, optional, optionalCall) {
  if (of === CUT || (optional && of == null)) return CUT;
  if (of == null) missing(id, of, method);
  const isOwn = isRecord(of) && Object.hasOwn(of, method);
  const signature = signatures[Array.isArray(of) ? "array" : typeof of];
  if (signature && !isOwn) {
    const given = checked(`.${method}`, signature, values());
    return method in CAREFUL ? CAREFUL[method](of, given, id) : of[method](...given);
  }
  if (!isOwn && method in Object(of)) refuse(`\`.${method}()\` of ${kind(of)} (\`${source(id)}\`) is not supported`);
  if (optionalCall && of[method] == null) return CUT;
  return fail(`\`${source(id)}\` is ${kind(of)}, which has no method \`${method}\``);
}

// Methods that need more than their arguments checked.
const CAREFUL = {
  __proto__: null,
  every(of, [test], id) {
    return of.every((item, n) => {
      places[id] = n;
      return test(item, n, of);
    });
  },
  reduce(of, given) {
    if (of.length + given.length < 2) fail("`.reduce()` of an empty array needs a first value");
    return of.reduce(...given);
  },
  toFixed(of, [digits = 0]) {
    if (Math.trunc(digits) < 0 || Math.trunc(digits) > 100) fail("`.toFixed()` takes 0 to 100 digits");
    return of.toFixed(digits);
  },
  sort: (of, [compare]) => sorted(of, compare, "sort"),
  toSorted: (of, [compare]) => sorted(of, compare, "toSorted"),
};

// Where a comparison contradicts itself, the order would be the engine's own.
function sorted(of, compare, method) {
  if (compare === undefined) return of[method]();
  const order = (left, right) => {
    const result = compare(left, right);
    if (typeof result === "number" && !Number.isNaN(result)) return Math.sign(result);
    return refuse(`the function of \`.sort()\` has to give a number such as \`a - b\`, not ${kind(result)}`);
  };
  const result = of[method](order);
  const present = result.filter((item) => item !== undefined);
  for (let n = 1; n < present.length; n++) {
    const forth = order(present[n - 1], present[n]), back = order(present[n], present[n - 1]);
    if (forth > 0 || forth !== -back) refuse("the function of `.sort()` contradicts itself");
  }
  return result;
}

// ------------------------------------------------------------------------------------------------------ explanation

// Why a part, whose last value doesn't count as true, doesn't. Only the parts that decided are looked at, so inside an
// arrow function their last values are those for the item that decided.
function explain(id) {
  const [type, , ...details] = nodes[id];
  return type in EXPLAIN ? EXPLAIN[type](id, ...details) : plain(id);
}

const source = (id) => nodes[id][1];
const described = (id) => show(seen[id]) + siblings(id, seen[id]);
const named = (id) => `\`${source(id)}\` is ${show(seen[id])}`;
const plain = (id) => `${source(id)} → ${described(id)}`;

const EXPLAIN = {
  logic(id, operator, parts) {
    if (operator === "||") {
      const reasons = parts.slice(0, MAX_ALTERNATIVES).map(explain).join("; ");
      return `none of the ${parts.length} alternatives holds: ${reasons}`;
    }
    const decides = operator === "&&" ? (part) => !seen[part] : (part) => seen[part] != null;
    return explain(parts.find(decides) ?? parts.at(-1));
  },
  compare(id, left, right) {
    const sides = [left, right].filter((side) => nodes[side][0] !== "literal");
    const found = sides.map((side) => `\`${source(side)}\` is ${described(side)}`).join(", ");
    const why = sides.length === 1 ? `it is ${described(sides[0])}` : found;
    return `${source(id)} → false${why && ": "}${why}`;
  },
  not: (id, of) => `${source(id)} → false: ${named(of)}`,
  test: (id, of) => `${source(id)} → false: ${named(of)}`,
  choice: (id, test, yes, no) => `${explain(seen[test] ? yes : no)} (as ${named(test)})`,
  chain: (id, of) => nodes[of][0] === "call" ? explain(of) : plain(id),
  call(id, of, method, body) {
    const list = seen[of], n = places[of];
    if (Array.isArray(list) && body !== null && method === "some") {
      return `${source(id)} → false: none of the ${list.length} items of \`${source(of)}\`, which is ${show(list)}`;
    }
    if (Array.isArray(list) && body !== null && method === "every") {
      return `${source(id)} → false: item [${n}] is ${show(list[n])}: ${explain(body)}`;
    }
    return `${source(id)} → ${show(end(seen[id]))}: ${named(of)}`;
  },
};

const clip = (text, length) => [...text].length <= length ? text : `${[...text].slice(0, length - 1).join("")}…`;
const show = (value) => clip(shown(value, MAX_SHOWN_DEPTH), MAX_VALUE_CHARS);
const quoted = (text) => JSON.stringify(text.slice(0, MAX_VALUE_CHARS + 1).replace(/\p{Surrogate}/gu, "?"));

// The first keys of an object, for "it has: …".
function names(value) {
  const keys = Object.keys(value);
  const written = keys.slice(0, MAX_ITEMS).map((key) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(key) ? key : quoted(key));
  const more = keys.length > MAX_ITEMS ? [`… (${keys.length} in all)`] : [];
  return [...written.map((key) => clip(key, 40)), ...more].join(", ") || "nothing";
}

function shown(value, depth) {
  if (typeof value === "string") return quoted(value);
  if (!isObject(value)) return String(end(value));
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const some = (Array.isArray(value) ? value : Object.keys(value)).slice(0, MAX_ITEMS + 1);
  const inside = some.map((item, n) => {
    if (depth === 0 || n === MAX_ITEMS) return "…";
    return Array.isArray(value) ? shown(item, depth - 1) : `${quoted(item)}: ${shown(value[item], depth - 1)}`;
  });
  return open + (depth === 0 ? inside.slice(0, 1) : inside).join(", ") + close;
}

// A context serves one expression after another: nothing that one could reach can be changed.
for (const name of Object.getOwnPropertyNames(globalThis)) {
  for (const value of [globalThis[name], globalThis[name]?.prototype]) {
    if (Object(value) === value) Object.freeze(value);
  }
}
