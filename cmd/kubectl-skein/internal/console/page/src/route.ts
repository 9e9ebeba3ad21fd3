// Addresses of views: the part of the URL after "#". Each part is escaped, so names of threads may have any character.
import { useSyncExternalStore } from "react";

export type Tab = "conversation" | "runs" | "family" | "files" | "state";

export type Route =
  | { view: "threads" }
  | { view: "thread"; namespace: string; name: string; tab: Tab; run?: string; message?: string }
  | { view: "approvals" }
  | { view: "effects"; namespace?: string; name?: string };

const tabs: Tab[] = ["conversation", "runs", "family", "files", "state"];

/** Returns the route of an address. An unknown one is the list of threads. */
export function parseRoute(hash: string): Route {
  const [path, query] = hash.replace(/^#?\/?/, "").split("?", 2);
  let parts: string[];
  try {
    parts = (path ?? "").split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return { view: "threads" }; // a percent sign without digits
  }
  const [view, namespace, name, tab, run] = parts;
  if (view === "threads" && namespace && name) {
    const message = new URLSearchParams(query ?? "").get("message") ?? undefined;
    return { view: "thread", namespace, name, tab: tabs.find((t) => t === tab) ?? "conversation", run, message };
  }
  if (view === "approvals") return { view };
  if (view === "effects") return { view, namespace, name };
  return { view: "threads" };
}

/** Returns the address of a route, with "#". */
export function addressOf(route: Route): string {
  const join = (...parts: (string | undefined)[]) =>
    "#/" + parts.filter((p): p is string => p !== undefined).map(encodeURIComponent).join("/");
  switch (route.view) {
    case "thread": {
      const tab = route.tab === "conversation" ? undefined : route.tab;
      const address = join("threads", route.namespace, route.name, tab, route.tab === "runs" ? route.run : undefined);
      return route.message ? `${address}?message=${encodeURIComponent(route.message)}` : address;
    }
    case "effects":
      return join("effects", route.namespace, route.namespace ? route.name : undefined);
    default:
      return join(route.view);
  }
}

export function go(route: Route): void {
  location.hash = addressOf(route);
}

function subscribe(changed: () => void): () => void {
  addEventListener("hashchange", changed);
  return () => removeEventListener("hashchange", changed);
}

/** The address of the present view; a new one draws the page again. */
export function useHash(): string {
  return useSyncExternalStore(subscribe, () => location.hash);
}
