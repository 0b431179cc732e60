// Numbers and names for people to read.

const THIN = "\u202f"; // narrow space without a line break

export const count = (n) => (n ?? 0).toLocaleString("en");

export const plural = (n, word) =>
  `${count(n)} ${n === 1 ? word : word.endsWith("y") ? `${word.slice(0, -1)}ies` : `${word}s`}`;

/** Format a probability in percent. */
export function percent(p) {
  if (p > 0 && p < 0.001) return `<${THIN}0.1${THIN}%`;
  if (p < 1 && p > 0.999) return `>${THIN}99.9${THIN}%`;
  return `${(100 * p).toFixed(1)}${THIN}%`;
}

/** Format a contribution with its sign. */
export function signed(value) {
  const size = Math.abs(value);
  const digits = size === 0 || size >= 0.01 ? size.toFixed(2) : size.toExponential(1);
  return (value < 0 ? "−" : "+") + digits;
}

/** Remove case and accents, as the server does. */
export const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Format a metric for a table. */
export function figure(value) {
  if (typeof value !== "number") return String(value ?? "–");
  if (Number.isInteger(value)) return count(value);
  return Math.abs(value) < 10 ? value.toFixed(4) : value.toFixed(1);
}

/** Shorten a name: a path loses its beginning, another name its end. */
export function short(name, length) {
  if (name.length <= length) return name;
  return name.includes("/") ? `…${name.slice(1 - length)}` : `${name.slice(0, length - 1)}…`;
}

/** Return the value of a full bar: 1, or less if every bar would be too small to see. */
export function scale(values) {
  const largest = Math.max(0, ...values);
  return [0.01, 0.02, 0.05, 0.1, 0.2].find((end) => largest <= end) ?? 1;
}
