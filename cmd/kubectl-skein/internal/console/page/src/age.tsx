// Ages, which change by themselves. Only they are drawn again as time passes, and all of them share one timer.
import { useSyncExternalStore } from "react";
import { due, relative } from "./format";

let now = Date.now();
let timer: number | undefined;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  now = Date.now();
  timer ??= window.setInterval(() => {
    now = Date.now();
    listeners.forEach((each) => each());
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** How long ago a time was, in milliseconds since 1970. */
export function Age({ at }: { at: number }) {
  return <>{useSyncExternalStore(subscribe, () => relative(at, now))}</>;
}

/** When something is due, or was. */
export function Due({ at }: { at: number }) {
  return <>{useSyncExternalStore(subscribe, () => due(at, now))}</>;
}
