// One thread: what it is and does, and its parts.
import { useEffect } from "react";
import { get, post, threadPath } from "../api";
import { lacking } from "../context";
import { useRights } from "../rights";
import { cost, count, fromMicros, plural, time } from "../format";
import { useAction, useLoaded } from "../hooks";
import { useLive } from "../live";
import { addressOf, type Route, type Tab } from "../route";
import type { Rights, ThreadRecord, ThreadRow, ThreadState, Usage } from "../types";
import { Button, Facts, Failure, Loading, Notice, State } from "../ui";
import { Conversation } from "./conversation";
import { Family } from "./family";
import { Files } from "./files";
import { useObserved, type Observed } from "./observed";
import { Runs } from "./runs";
import { StateOfThread } from "./state";
import { ThreadApprovals } from "../approvals";

type ThreadRoute = Extract<Route, { view: "thread" }>;

const tabs: { tab: Tab; label: string }[] = [
  { tab: "conversation", label: "Conversation" },
  { tab: "runs", label: "Runs" },
  { tab: "family", label: "Family" },
  { tab: "files", label: "Files" },
  { tab: "state", label: "State" },
];

export function ThreadView({ route }: { route: ThreadRoute }) {
  const { namespace, name } = route;
  const live = useLive();
  const observed = useObserved(namespace, name);
  const rights = useRights(namespace);
  const row = live.threads.rows.get(`${namespace}/${name}`);
  const record = observed.value?.thread;
  return (
    <div className="view thread">
      <ThreadHead namespace={namespace} name={name} row={row} record={record} rights={rights} gone={observed.ended} />
      <Failure text={[observed.ended, lacking(rights, "conversation")].filter(Boolean).join(". ")} />
      {!observed.connected && !observed.ended && record && <Notice>The connection is lost. The page connects again and shows what it knows meanwhile.</Notice>}
      <nav className="tabs" aria-label="Parts of the thread">
        {tabs.map(({ tab, label }) => (
          <a key={tab} href={addressOf({ view: "thread", namespace, name, tab })} aria-current={tab === route.tab ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      <Waits row={row} record={record} namespace={namespace} name={name} />
      <Part key={record?.threadId} route={route} observed={observed} rights={rights} />
      <div className="unseen" role="log" aria-live="polite" aria-label="What happens in the thread">
        {observed.news.map((n) => (
          <p key={n.seq}>{n.text}</p>
        ))}
      </div>
    </div>
  );
}

function Part({ route, observed, rights }: { route: ThreadRoute; observed: Observed; rights: Rights | undefined }) {
  const { namespace, name, tab } = route;
  if (tab === "family") return <Family namespace={namespace} name={name} />;
  if (!observed.value) return observed.ended ? null : <Loading what="the thread" />;
  switch (tab) {
    case "runs":
      return <Runs namespace={namespace} name={name} record={observed.value.thread} chosen={route.run} />;
    case "files":
      return <Files namespace={namespace} name={name} version={observed.value.thread.v} />;
    case "state":
      return <StateOfThread state={observed.value.state} values={observed.value.values} />;
    default:
      return <Conversation namespace={namespace} name={name} observed={observed} gone={observed.ended} rights={rights} jumpTo={route.message} />;
  }
}

interface ThreadHeadProps {
  namespace: string;
  name: string;
  row: ThreadRow | undefined;
  record: ThreadRecord | undefined;
  rights: Rights | undefined;
  /** Why nothing can be done: the thread was deleted, or may not be read. */
  gone: string;
}

/** What a thread does, by its record, for viewers who may not list Thread objects. */
function stateOfRecord(record: ThreadRecord): ThreadState {
  if (record.terminated) return "Terminated";
  if (record.lastRun?.status === "running") return "Running";
  if (record.lastRun?.status === "waiting") return "Waiting";
  return record.parked ? "Parked" : "Idle";
}

function ThreadHead({ namespace, name, row, record, rights, gone }: ThreadHeadProps) {
  const underWay = record?.lastRun?.status === "running" || record?.lastRun?.status === "waiting";
  const stop = useAction();
  const goOn = useAction();
  // Actions name the thread by its id, so that they never reach another one that has got its name.
  const id = record?.threadId ?? name;
  const title = record?.title || row?.title || name;
  return (
    <div className="thread-head">
      <div className="title">
        <h1 title={name}>{title}</h1>
        {(row || record) && <State state={row?.state ?? stateOfRecord(record!)} />}
        <Button
          label="Stop"
          name={`Stop the run of ${name}`}
          kind="danger"
          busy={stop.busy}
          unavailable={gone || lacking(rights, "stop") || (underWay ? "" : "No run is under way.")}
          onClick={() => void stop.run(() => post(threadPath(namespace, id, "stop"), {}))}
        />
        {record?.parked && (
          <Button
            label="Continue"
            name={`Continue the queue of ${name}`}
            busy={goOn.busy}
            unavailable={gone || lacking(rights, "continue")}
            onClick={() => void goOn.run(() => post(threadPath(namespace, id, "continue"), {}))}
          />
        )}
      </div>
      <Failure text={stop.error} onDismiss={stop.clear} />
      <Failure text={goOn.error} onDismiss={goOn.clear} />
      <ThreadFacts namespace={namespace} name={name} row={row} record={record} />
    </div>
  );
}

/** So often the cost is read again, because the runs of subagents end without a sign here. */
const costEvery = 15_000;

function ThreadFacts({ namespace, name, row, record }: Omit<ThreadHeadProps, "rights" | "gone">) {
  const lastRun = record?.lastRun;
  const usage = useLoaded((signal) => get<Usage>(threadPath(namespace, name, "usage") + "?subtree=true", signal), [namespace, name, lastRun?.id, lastRun?.endedAt]);
  const { again } = usage;
  useEffect(() => {
    const timer = setInterval(again, costEvery);
    return () => clearInterval(timer);
  }, [again]);
  const facts: [label: string, text: string | undefined][] = [
    ["Name", `${namespace}/${name}`],
    ["Agent", record?.agentId ?? row?.agent],
    ["User", record?.userId || row?.user || undefined],
    ["Below", row?.parent || undefined],
    ["Messages", record && count(record.messageCount) + (record.queuedCount ? ` and ${count(record.queuedCount)} in the queue` : "")],
    ["Last run", lastRun ? `${lastRun.status}${lastRun.reason ? `: ${lastRun.reason}` : ""}, ${plural(lastRun.steps, "step")}` : undefined],
    ["Cost with subagents", usage.value ? cost(usage.value.cost) : usage.error && "may not be read"],
    ["Tokens", usage.value && `${count(usage.value.inputTokens)} read, ${count(usage.value.outputTokens)} written`],
    ["Created", record && time(fromMicros(record.createdAt))],
  ];
  return (
    <>
      <h2 className="unseen">
        Facts
      </h2>
      <Facts facts={facts} />
    </>
  );
}

interface WaitsProps {
  row: ThreadRow | undefined;
  record: ThreadRecord | undefined;
  namespace: string;
  name: string;
}

/** Says what the thread waits for. Calls that wait for approval can be decided here, also by viewers who may not list Thread objects. */
function Waits({ row, record, namespace, name }: WaitsProps) {
  const waits = row?.waits;
  const approval = waits?.reason === "WaitingForApproval" || record?.lastRun?.status === "waiting";
  const help: Record<string, string> = {
    EnvMissing: `kubectl skein -n ${namespace} provide ${name}`,
    Parked: "The button Continue lets the messages go on that wait in the queue.",
  };
  return (
    <>
      {waits && waits.reason !== "WaitingForApproval" && (
        <Notice>
          <strong>{waits.reason}</strong>: {waits.message} {help[waits.reason]}
        </Notice>
      )}
      {approval && <ThreadApprovals namespace={namespace} name={name} version={record?.v ?? row} />}
    </>
  );
}
