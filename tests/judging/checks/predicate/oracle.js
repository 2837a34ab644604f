// Evaluates expressions in node, for `recorded.py`. In: one JSON array of [expression, JSON text] per line. Out, per
// line: the value in the form of plain.js, or {"throws": name}.
const fs = require("fs");
const plain = eval(fs.readFileSync(`${__dirname}/plain.js`, "utf8"));

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

const lines = fs.readFileSync(0, "utf8").split("\n").filter(Boolean);
process.stdout.write(lines.map((line) => JSON.stringify(answer(JSON.parse(line)))).join("\n"));
