// Round numbers for axis ticks.

/** Marks from 0 to at least `largest`, about `wanted` of them. */
export function marks(largest, wanted = 4, least = 1) {
  const top = Math.max(largest, least);
  const raw = top / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw - 1e-9);
  const count = Math.ceil(top / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, at) => at * step);
}
