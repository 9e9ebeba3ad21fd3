// What the viewer may do in a namespace. All parts of the page share one read of it, because each read is a dozen reviews for the API server.
import { useCallback, useSyncExternalStore } from "react";
import { get } from "./api";
import type { Rights } from "./types";

/** A view that opens later than this, in milliseconds, reads the rights again, because an administrator may have changed them. */
const freshFor = 60_000;

class Entry {
  value: Rights | undefined;
  private readAt = -Infinity;
  private listeners = new Set<() => void>();

  constructor(private readonly namespace: string) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    if (Date.now() - this.readAt >= freshFor) this.read();
    return () => this.listeners.delete(listener);
  }

  private read(): void {
    this.readAt = Date.now();
    get<Rights>(`/api/rights?namespace=${encodeURIComponent(this.namespace)}`).then(
      (value) => {
        this.value = value;
        this.listeners.forEach((listener) => listener());
      },
      () => (this.readAt = -Infinity), // the next view asks again, and meanwhile the server decides
    );
  }
}

const entries = new Map<string, Entry>();

function entryOf(namespace: string): Entry {
  let entry = entries.get(namespace);
  if (!entry) entries.set(namespace, (entry = new Entry(namespace)));
  return entry;
}

/** The rights of the viewer in a namespace; undefined while they are not known. */
export function useRights(namespace: string): Rights | undefined {
  const entry = entryOf(namespace);
  const subscribe = useCallback((listener: () => void) => entry.subscribe(listener), [entry]);
  return useSyncExternalStore(subscribe, () => entry.value);
}
