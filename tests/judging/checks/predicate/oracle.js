// Evaluates expressions for the differential test. In: one JSON array of [expression, JSON text] per line.
// Out, per line: the value in a form that JSON can carry, or {"throws": name}.
function plain(value) {
  if (value === undefined) return { undefined: true };
  if (value === null) return { null: true };
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0)))
    return { number: Object.is(value, -0) ? "-0" : String(value) };
  if (Array.isArray(value)) return { array: Array.from(value, plain) };
  if (Object.getPrototypeOf(value) === Object.prototype)
    return { object: Object.keys(value).map((key) => [key, plain(value[key])]) };
  return ["string", "number", "boolean"].includes(typeof value) ? value : { other: typeof value };
}

function answer([expression, text]) {
  const data = JSON.parse(text);
  const isObject = typeof data === "object" && data !== null && !Array.isArray(data);
  const names = isObject ? Object.keys(data).filter((key) => /^[a-z]+$/.test(key) && key !== "output") : [];
  try {
    const run = new Function("output", "$", ...names, `return (${expression}\n)`);
    return plain(run(data, data, ...names.map((name) => data[name])));
  } catch (error) {
    return { throws: error.name };
  }
}

const lines = require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean);
process.stdout.write(lines.map((line) => JSON.stringify(answer(JSON.parse(line)))).join("\n"));
