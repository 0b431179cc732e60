// Numbers and names as people read them.

const THIN = "\u202f"; // a narrow space that does not break

export const count = (n) => (n ?? 0).toLocaleString("en");

export const plural = (n, word) =>
  `${count(n)} ${n === 1 ? word : word.endsWith("y") ? `${word.slice(0, -1)}ies` : `${word}s`}`;

/** A probability in percent, with as many digits as say something. */
export function percent(p) {
  if (p > 0 && p < 0.001) return `<${THIN}0.1${THIN}%`;
  if (p < 1 && p > 0.999) return `>${THIN}99.9${THIN}%`;
  return `${(100 * p).toFixed(1)}${THIN}%`;
}

/** A contribution with its sign. */
export function signed(value) {
  const size = Math.abs(value);
  const digits = size === 0 || size >= 0.01 ? size.toFixed(2) : size.toExponential(1);
  return (value < 0 ? "−" : "+") + digits;
}

/** A text without its case and accents, as the server compares names. */
export const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** A metric as tables show it. */
export function figure(value) {
  if (typeof value !== "number") return String(value ?? "–");
  if (Number.isInteger(value)) return count(value);
  return Math.abs(value) < 10 ? value.toFixed(4) : value.toFixed(1);
}

/** A name cut to a number of characters: paths lose their beginning, other names their end. */
export function short(name, length) {
  if (name.length <= length) return name;
  return name.includes("/") ? `…${name.slice(1 - length)}` : `${name.slice(0, length - 1)}…`;
}

/** The end of a scale that bars of these values are drawn on: 1, unless all of them would be too small to see. */
export function scale(values) {
  const largest = Math.max(0, ...values);
  return [0.01, 0.02, 0.05, 0.1, 0.2].find((end) => largest <= end) ?? 1;
}
