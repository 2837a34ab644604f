(function plain(value) {
  if (value === undefined) return { undefined: true };
  if (value === null) return { null: true };
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0)))
    return { number: Object.is(value, -0) ? "-0" : String(value) };
  if (Array.isArray(value)) return { array: Array.from(value, plain) };
  if (Object.getPrototypeOf(value) === Object.prototype)
    return { object: Object.keys(value).map((key) => [key, plain(value[key])]) };
  return ["string", "number", "boolean"].includes(typeof value) ? value : { other: typeof value };
})
