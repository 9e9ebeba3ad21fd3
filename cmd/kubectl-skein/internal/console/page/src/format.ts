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

/** Writes a duration in milliseconds. */
export function duration(ms: number): string {
  if (ms < 1) return `${Math.max(0, Math.round(ms * 1000))} µs`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Writes a number of bytes. */
export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1 << 20) return `${(n / 1024).toFixed(1)} KiB`;
  if (n < 1 << 30) return `${(n / (1 << 20)).toFixed(1)} MiB`;
  return `${(n / (1 << 30)).toFixed(1)} GiB`;
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

/** Writes a time of the viewer's time zone. `ms` are milliseconds. */
export function time(ms: number): string {
  return ms ? new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "–";
}

/** Writes a time of the viewer's time zone without its date. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString();
}

/** Microseconds, which the runtime API has, as milliseconds. */
export function fromMicros(us: number | undefined | null): number {
  return us ? us / 1000 : 0;
}

/** Writes JSON text with indentation. A text that is not JSON stays as it is. */
export function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
