import ms from 'ms';

/** The time between two days, written as 2024-03-01, in words. */
export function between(from: string, to: string): string {
  const passed = Date.parse(to) - Date.parse(from);
  if (Number.isNaN(passed)) throw new Error(`"${from}" or "${to}" is no date such as 2024-03-01`);
  return ms(passed, { long: true });
}
