// The tool calls that wait for a person, of all threads that are listed.
import { useId, useMemo, useState } from "react";
import { get, post, threadPath } from "./api";
import { lacking } from "./context";
import { fromMicros, plural, pretty, relative, time } from "./format";
import { useAction, useLoaded, useNow } from "./hooks";
import { keyOf, useLive } from "./live";
import { addressOf } from "./route";
import type { Approval, ApprovalList, Rights, ThreadRow } from "./types";
import { Button, Empty, Failure, Loading } from "./ui";

/** So many threads are asked at first. */
const fewThreads = 50;

export function Approvals() {
  const { threads } = useLive();
  const [limit, setLimit] = useState(fewThreads);
  const waiting = useMemo(
    () => [...threads.rows.values()].filter((row) => row.waits?.reason === "WaitingForApproval").sort((a, b) => a.active - b.active || (keyOf(a) < keyOf(b) ? -1 : 1)),
    [threads],
  );
  return (
    <div className="view approvals">
      <div className="toolbar">
        <h1>Approvals</h1>
        <span className="total" role="status">
          {plural(waiting.length, "thread")} {waiting.length === 1 ? "waits" : "wait"} for approval
        </span>
      </div>
      <Failure text={threads.error} />
      {waiting.length === 0 && (threads.synced ? <Empty>No call waits for approval.</Empty> : !threads.error && <Loading what="threads" />)}
      {waiting.slice(0, limit).map((row) => (
        <section key={keyOf(row)} aria-label={`Calls of ${keyOf(row)}`}>
          <h2>
            <a href={addressOf({ view: "thread", namespace: row.namespace, name: row.name, tab: "conversation" })}>{row.title || row.name}</a>{" "}
            <small>
              {row.namespace}/{row.name}, agent {row.agent}
            </small>
          </h2>
          <ThreadApprovals row={row} />
        </section>
      ))}
      {waiting.length > limit && <Button label={`${plural(waiting.length - limit, "more thread")}`} onClick={() => setLimit(limit + fewThreads)} />}
    </div>
  );
}

/** The calls of one thread that wait. */
export function ThreadApprovals({ row }: { row: ThreadRow }) {
  const { namespace, name } = row;
  // The text of the condition names the calls, so it changes with them.
  const list = useLoaded((signal) => get<ApprovalList>(`${threadPath(namespace, name, "approvals")}?limit=100`, signal), [namespace, name, row.waits?.message]);
  const rights = useLoaded((signal) => get<Rights>(`/api/rights?namespace=${encodeURIComponent(namespace)}`, signal), [namespace]).value;
  const calls = list.value?.approvals.filter((a) => !a.decision);
  return (
    <div className="calls">
      <Failure text={list.error ?? ""} />
      {!calls && !list.error && <Loading what="the calls" />}
      {calls?.map((call) => <Decide key={call.toolCallId} row={row} call={call} unavailable={lacking(rights, "approve")} onDecided={list.again} />)}
      {list.value?.hasMore && <p className="dim">More calls wait. They are shown once these are decided.</p>}
    </div>
  );
}

interface DecideProps {
  row: ThreadRow;
  call: Approval;
  unavailable: string;
  onDecided: () => void;
}

function Decide({ row, call, unavailable, onDecided }: DecideProps) {
  const now = useNow();
  const action = useAction();
  const [reason, setReason] = useState("");
  const [edited, setEdited] = useState<string | null>(null);
  const [wrong, setWrong] = useState("");
  const id = useId();
  const decide = async (decision: "approve" | "refuse") => {
    let replaced: unknown;
    if (decision === "approve" && edited !== null && edited !== pretty(call.arguments ?? "{}")) {
      try {
        replaced = JSON.parse(edited);
      } catch (err) {
        setWrong(`The arguments are not JSON: ${err instanceof Error ? err.message : String(err)}`);
        return;
      }
    }
    setWrong("");
    const body = { decision, ...(reason.trim() && { reason: reason.trim() }), ...(replaced !== undefined && { arguments: replaced }) };
    if (await action.run(() => post(threadPath(row.namespace, row.name, "approvals", call.toolCallId), body))) onDecided();
  };
  return (
    <section className="decide" aria-labelledby={id} data-test="approval">
      <h3 id={id}>
        <code>{call.name}</code> waits for approval
      </h3>
      <p className="dim">
        {call.requestedAt ? `Asked ${relative(fromMicros(call.requestedAt), now)} ago. ` : ""}
        {call.expiresAt ? `It is refused by itself at ${time(fromMicros(call.expiresAt))}.` : ""}
      </p>
      {edited === null ? (
        <pre tabIndex={0} aria-label={`Arguments of ${call.name}`}>
          {pretty(call.arguments ?? "{}")}
        </pre>
      ) : (
        <textarea aria-label={`New arguments of ${call.name}`} rows={Math.min(20, edited.split("\n").length + 1)} value={edited} onChange={(e) => setEdited(e.target.value)} spellCheck={false} />
      )}
      <label className="field">
        Reason <input value={reason} maxLength={4096} onChange={(e) => setReason(e.target.value)} placeholder="The model reads why a call was refused" />
      </label>
      <Failure text={wrong} onDismiss={() => setWrong("")} />
      <Failure text={action.error} onDismiss={action.clear} />
      <div className="buttons">
        <Button label="Approve" name={`Approve ${call.name}`} kind="primary" busy={action.busy} unavailable={unavailable} onClick={() => void decide("approve")} />
        <Button label="Refuse" name={`Refuse ${call.name}`} kind="danger" busy={action.busy} unavailable={unavailable} onClick={() => void decide("refuse")} />
        {edited === null ? (
          <Button label="Change the arguments" name={`Change the arguments of ${call.name}`} unavailable={unavailable} onClick={() => setEdited(pretty(call.arguments ?? "{}"))} />
        ) : (
          <Button label="Keep the arguments" name={`Keep the arguments of ${call.name}`} onClick={() => setEdited(null)} />
        )}
      </div>
    </section>
  );
}
