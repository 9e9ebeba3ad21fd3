// How times, sizes and costs are written.

const units: [limit: number, divisor: number, unit: string][] = [
  [60, 1, "s"],
  [3600, 60, "m"],
  [86400, 3600, "h"],
  [Infinity, 86400, "d"],
];

/** Writes how long ago a time was, or how far away it is, as kubectl writes ages. `at` and `now` are milliseconds. */
export function relative(at: number, now: number): string {
  if (!at) return "–";
  const seconds = Math.round(Math.abs(now - at) / 1000);
  const [, divisor, unit] = units.find(([limit]) => seconds < limit)!;
  const text = Math.floor(seconds / divisor) + unit;
  return at > now + 999 ? `in ${text}` : text;
}

/** Writes when something is due: "in 5s", or "5s ago" once that time has passed. */
export function due(at: number, now: number): string {
  const text = relative(at, now);
  return !at || text.startsWith("in ") ? text : `${text} ago`;
}

/** Writes a duration in milliseconds. Numbers are rounded before a unit is chosen, so that there is no "60 s". */
export function duration(ms: number): string {
  const micros = Math.round(ms * 1000);
  if (micros < 1000) return `${Math.max(0, micros)} µs`;
  const millis = Math.round(ms);
  if (millis < 1000) return `${millis} ms`;
  if (millis < 9950) return `${(millis / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Writes a number of bytes. */
export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB"];
  let value = n / 1024;
  let unit = 0;
  while (Number(value.toFixed(1)) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

/** Writes a cost in US dollars: four digits after the point, so that a single call is not shown as nothing. */
export function cost(dollars: number | undefined): string {
  return dollars === undefined ? "–" : `$${dollars.toFixed(4)}`;
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

/** Writes "1 message", or "2 messages". */
export function plural(n: number, one: string, many = one + "s"): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** The times that browsers know, in milliseconds before and after 1970. Imported messages may have others. */
const farthest = 8.64e15;

function known(ms: number): boolean {
  return Math.abs(ms) <= farthest; // false for NaN as well
}

/** Writes a time of the viewer's time zone. `ms` are milliseconds. */
export function time(ms: number): string {
  return ms && known(ms) ? new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "–";
}

/** Writes a time of the viewer's time zone without its date. */
export function clock(ms: number): string {
  return known(ms) ? new Date(ms).toLocaleTimeString() : "–";
}

/** Writes a time for machines; undefined where there is no way to write it. */
export function machineTime(ms: number): string | undefined {
  return known(ms) ? new Date(ms).toISOString() : undefined;
}

/** Microseconds, which the runtime API has, as milliseconds. */
export function fromMicros(us: number | undefined | null): number {
  return us ? us / 1000 : 0;
}

export { pretty, visible } from "./json";
