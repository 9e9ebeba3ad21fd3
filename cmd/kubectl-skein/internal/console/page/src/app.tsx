// The page: its head, and the view that the address names.
import { useEffect, useMemo, useRef, useState } from "react";
import { Approvals } from "./approvals";
import { get, messageOf } from "./api";
import { ViewerContext } from "./context";
import { Effects } from "./effects";
import { useLoaded } from "./hooks";
import { LiveContext, useLive, useLiveLists } from "./live";
import { addressOf, go, parseRoute, useHash, type Route } from "./route";
import { ThreadView } from "./thread/view";
import { Threads } from "./threads";
import type { Namespaces, Session } from "./types";
import { Boundary, Button, Failure, Loading } from "./ui";

export function App() {
  const session = useLoaded((signal) => get<Session>("/api/session", signal), []);
  if (session.error) {
    return (
      <main className="view" aria-label="The console">
        <Failure text={session.error} />
        <div className="buttons">
          <Button label="Try again" busy={session.loading} onClick={session.again} />
        </div>
      </main>
    );
  }
  if (!session.value) return <Loading what="the session" />;
  return <Console session={session.value} />;
}

const namespaceKey = "skein-console-namespace";

interface Choice {
  namespace: string;
  /** The namespace with which the command was started. A choice does not outlive another one. */
  of: string;
}

function chosenNamespace(session: Session): string {
  try {
    const choice = JSON.parse(sessionStorage.getItem(namespaceKey) ?? "null") as Choice | null;
    if (choice && choice.of === session.namespace) return choice.namespace;
  } catch {
    // It is not what this page writes.
  }
  return session.namespace;
}

function Console({ session }: { session: Session }) {
  const route = parseRoute(useHash());
  const [namespace, setNamespace] = useState(() => chosenNamespace(session));
  const live = useLiveLists(namespace);
  const viewer = useMemo(() => ({ session, namespace }), [session, namespace]);
  const choose = (chosen: string) => {
    sessionStorage.setItem(namespaceKey, JSON.stringify({ namespace: chosen, of: session.namespace } satisfies Choice));
    // What is open belongs to the namespace before.
    if (route.view === "thread") go({ view: "threads" });
    else if (route.view === "effects" && route.name) go({ view: "effects" });
    setNamespace(chosen);
  };
  // A thread of another namespace was opened by its address: the lists follow, so that its state and its family are there.
  const opened = route.view === "thread" || route.view === "effects" ? route.namespace : undefined;
  useEffect(() => {
    if (opened && namespace !== "" && namespace !== opened) setNamespace(opened);
  }, [opened]);
  return (
    <ViewerContext value={viewer}>
      <LiveContext value={live}>
        <a className="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
          Skip to the content
        </a>
        <Head route={route} session={session} namespace={namespace} onNamespace={choose} />
        <Lost connected={live.connected} />
        <Main route={route} />
      </LiveContext>
    </ViewerContext>
  );
}

/** So often the page asks again why the lists are not connected. */
const askAgain = 5000;

/** Says why the lists are not connected, where the viewer can do something about it. A WebSocket does not say why it was refused. */
function Lost({ connected }: { connected: boolean }) {
  const [why, setWhy] = useState("");
  useEffect(() => {
    setWhy("");
    if (connected) return;
    const stop = new AbortController();
    const ask = () => get<Session>("/api/session", stop.signal).then(() => setWhy(""), (err) => stop.signal.aborted || setWhy(messageOf(err)));
    const timer = setInterval(() => void ask(), askAgain);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [connected]);
  return <Failure text={why} />;
}

/** The view. When another one opens, the focus moves to it, and the title of the window names it. */
function Main({ route }: { route: Route }) {
  const ref = useRef<HTMLElement>(null);
  const { threads } = useLive();
  const waiting = useMemo(() => countApprovals(threads.rows.values()), [threads]);
  const title = titleOf(route);
  const opened = useRef(title);
  useEffect(() => {
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${title} – Skein`;
  }, [title, waiting]);
  useEffect(() => {
    if (opened.current !== title) ref.current?.focus();
    opened.current = title;
  }, [title]);
  return (
    <main id="main" ref={ref} tabIndex={-1} aria-label={title}>
      <Boundary key={title}>
        {route.view === "threads" && <Threads />}
        {route.view === "thread" && <ThreadView key={`${route.namespace}/${route.name}`} route={route} />}
        {route.view === "approvals" && <Approvals />}
        {route.view === "effects" && <Effects namespace={route.namespace} name={route.name} />}
      </Boundary>
    </main>
  );
}

/** Names a view. Two views have the same name only when they are the same. */
function titleOf(route: Route): string {
  switch (route.view) {
    case "thread":
      return `${route.name} in ${route.namespace}`;
    case "effects":
      return route.name ? `Effect ${route.name} in ${route.namespace}` : "Effects";
    default:
      return { threads: "Threads", approvals: "Approvals" }[route.view];
  }
}

export function countApprovals(rows: Iterable<{ waits: { reason: string } | null }>): number {
  let n = 0;
  for (const row of rows) if (row.waits?.reason === "WaitingForApproval") n++;
  return n;
}

interface HeadProps {
  route: Route;
  session: Session;
  namespace: string;
  onNamespace: (namespace: string) => void;
}

function Head({ route, session, namespace, onNamespace }: HeadProps) {
  const live = useLive();
  const waiting = useMemo(() => countApprovals(live.threads.rows.values()), [live.threads]);
  const views = [
    { label: "Threads", route: { view: "threads" } as Route, here: route.view === "threads" || route.view === "thread" },
    { label: waiting > 0 ? `Approvals (${waiting})` : "Approvals", route: { view: "approvals" } as Route, here: route.view === "approvals" },
    { label: "Effects", route: { view: "effects" } as Route, here: route.view === "effects" },
  ];
  return (
    <header className="head">
      <strong className="brand">Skein</strong>
      <nav aria-label="Views">
        {views.map((v) => (
          <a key={v.route.view} href={addressOf(v.route)} aria-current={v.here ? "page" : undefined}>
            {v.label}
          </a>
        ))}
      </nav>
      <NamespaceChoice namespace={namespace} onNamespace={onNamespace} />
      <span className="who" title={`${session.cluster}${session.context ? `, context ${session.context}` : ""}`}>
        {session.user || "unknown user"}
      </span>
      <span className={live.connected ? "link up" : "link down"} role="status">
        {live.connected ? "Live" : "Connecting…"}
      </span>
    </header>
  );
}

function NamespaceChoice({ namespace, onNamespace }: { namespace: string; onNamespace: (namespace: string) => void }) {
  const { value, error } = useLoaded((signal) => get<Namespaces>("/api/namespaces", signal), []);
  const names = useMemo(() => {
    const all = new Set(value?.namespaces);
    if (namespace) all.add(namespace);
    return [...all].sort();
  }, [value, namespace]);
  const [other, setOther] = useState("");
  return (
    <div className="namespace">
      <label>
        Namespace{" "}
        <select value={namespace} title={error && `The namespaces cannot be listed: ${error}`} onChange={(e) => onNamespace(e.target.value)}>
          <option value="">All namespaces</option>
          {names.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {error && (
        <span className="bad" title={error}>
          The list cannot be read.
        </span>
      )}
      {(error || (value && !value.complete)) && (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (other.trim()) onNamespace(other.trim());
            setOther("");
          }}
        >
          <input aria-label="Another namespace" placeholder="another" value={other} onChange={(e) => setOther(e.target.value)} />
        </form>
      )}
    </div>
  );
}
