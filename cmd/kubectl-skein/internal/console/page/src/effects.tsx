// The ScheduledEffects: when they fire next, when they fired last, and what did not fire.
import { memo, useMemo, useRef, useState } from "react";
import { Due } from "./age";
import { firingsPath, get, post, RequestError } from "./api";
import { lacking, useViewer } from "./context";
import { cost, count, duration, fromMicros, plural, time } from "./format";
import { useAction, useLoaded } from "./hooks";
import { keyOf, useLive } from "./live";
import { useRights } from "./rights";
import { addressOf } from "./route";
import type { EffectRow, FiringList } from "./types";
import { Button, Empty, Facts, Failure, Loading, Notice } from "./ui";

export function Effects({ namespace, name }: { namespace?: string; name?: string }) {
  const { effects } = useLive();
  if (namespace && name) return <OneEffect key={`${namespace}/${name}`} namespace={namespace} name={name} />;
  const rows = [...effects.rows.values()].sort((a, b) => Number(a.ended) - Number(b.ended) || (a.next || Infinity) - (b.next || Infinity) || (keyOf(a) < keyOf(b) ? -1 : 1));
  return (
    <div className="view effects">
      <div className="toolbar">
        <h1>Effects</h1>
        <span className="total" role="status">
          {plural(rows.length, "scheduled effect")}
        </span>
      </div>
      <Failure text={effects.error} />
      {rows.length > 0 ? <Table rows={rows} /> : effects.synced ? <Empty>There is no ScheduledEffect.</Empty> : !effects.error && <Loading what="effects" />}
    </div>
  );
}

/** So many rows are drawn at first. */
const fewRows = 200;

function Table({ rows }: { rows: EffectRow[] }) {
  const { namespace } = useViewer();
  const [limit, setLimit] = useState(fewRows);
  return (
    <>
      <table aria-label="Scheduled effects">
        <thead>
          <tr>
            <th scope="col">Effect</th>
            {namespace === "" && <th scope="col">Namespace</th>}
            <th scope="col">Does</th>
            <th scope="col">For</th>
            <th scope="col">Schedule</th>
            <th scope="col">Next</th>
            <th scope="col">Last</th>
            <th scope="col">Outcome</th>
            <th scope="col">Phase</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, limit).map((row) => (
            <Row key={keyOf(row)} row={row} withNamespace={namespace === ""} />
          ))}
        </tbody>
      </table>
      {rows.length > limit && <Button label={plural(rows.length - limit, "more effect")} onClick={() => setLimit(limit + 10 * fewRows)} />}
    </>
  );
}

const Row = memo(function Row({ row, withNamespace }: { row: EffectRow; withNamespace: boolean }) {
  return (
    <tr data-test="effect-row">
      <th scope="row">
        <a href={addressOf({ view: "effects", namespace: row.namespace, name: row.name })}>{row.name}</a>
      </th>
      {withNamespace && <td>{row.namespace}</td>}
      <td>{row.does}</td>
      <td>{row.thread}</td>
      <td>
        <code>{row.schedule}</code>
      </td>
      <td title={time(row.next)}>
        <Due at={row.next} />
      </td>
      <td title={time(row.last)}>
        <Due at={row.last} />
      </td>
      <td>{row.outcome}</td>
      <td title={row.message} className={row.ready ? "" : "needs-person"}>
        {phaseOf(row)}
      </td>
    </tr>
  );
});

function phaseOf(row: EffectRow): string {
  if (row.suspended) return "Suspended";
  return row.ready ? row.phase : `${row.phase || "Not ready"}: ${row.reason}`;
}

/** So many firings are read at first. */
const fewFirings = 20;

/** The server gives at most so many at once. */
const mostOfPage = 1000;

/** Reads the newest firings, in as many pages as they take. */
async function readFirings(namespace: string, name: string, wanted: number, signal: AbortSignal): Promise<FiringList> {
  const page = (n: number, after = "") => get<FiringList>(`${firingsPath(namespace, name)}?limit=${Math.min(n, mostOfPage)}${after && `&continue=${encodeURIComponent(after)}`}`, signal);
  const list = await page(wanted);
  while (list.hasMore && list.continue && list.firings.length < wanted) {
    const next = await page(wanted - list.firings.length, list.continue);
    list.firings.push(...next.firings);
    list.hasMore = next.hasMore;
    list.continue = next.continue;
  }
  return list;
}

function OneEffect({ namespace, name }: { namespace: string; name: string }) {
  const { effects } = useLive();
  const row = effects.rows.get(`${namespace}/${name}`);
  const rights = useRights(namespace);
  const [wanted, setWanted] = useState(fewFirings);
  const list = useLoaded((signal) => readFirings(namespace, name, wanted, signal), [namespace, name, wanted, row]);
  const [last, setLast] = useState<FiringList>();
  if (list.value && list.value !== last) setLast(list.value);
  const firings = list.value ?? last;
  return (
    <div className="view effect">
      <p>
        <a href={addressOf({ view: "effects" })}>All effects</a>
      </p>
      <div className="toolbar">
        <h1 tabIndex={-1}>{name}</h1>
        {row && <span className="state">{phaseOf(row)}</span>}
      </div>
      {!row && effects.synced && <Failure text={`There is no ScheduledEffect ${namespace}/${name}.`} />}
      {row && <Actions row={row} unavailable={lacking(rights, "effects")} onDone={list.again} />}
      {row && !row.ready && (
        <Notice>
          <strong>{row.reason}</strong>: {row.message}
        </Notice>
      )}
      {row && <EffectFacts row={row} />}
      <Failure text={list.error ?? ""} />
      {firings && <Times list={firings} suspended={row?.suspended ?? false} />}
      {firings && <Firings list={firings} namespace={namespace} />}
      {firings?.hasMore && <Button label="Earlier firings" busy={list.loading && firings.firings.length < wanted} onClick={() => setWanted(Math.min(wanted * 5, wanted + mostOfPage))} />}
      {firings && <Skipped list={firings} />}
    </div>
  );
}

function EffectFacts({ row }: { row: EffectRow }) {
  const facts: [string, string][] = [
    ["Does", row.does],
    ["For", row.thread],
    ["Schedule", row.schedule],
    ["Last time", time(row.last)],
    ["Last outcome", row.outcome],
    ["Under way", row.active ? count(row.active) : ""],
    ["Created", time(row.created)],
  ];
  return (
    <Facts facts={facts} />
  );
}

function Actions({ row, unavailable, onDone }: { row: EffectRow; unavailable: string; onDone: () => void }) {
  const fire = useAction();
  const suspend = useAction();
  const [said, setSaid] = useState<string[]>([]);
  const path = `/api/effects/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;
  // A press that is repeated because its answer was lost fires once.
  const key = useRef(crypto.randomUUID());
  const paused = row.suspended || row.phase === "Paused";
  return (
    <div className="effect-actions">
      <div className="buttons">
        <Button
          label="Run now"
          name={`Run now: ${row.name}`}
          kind="primary"
          busy={fire.busy}
          unavailable={unavailable}
          onClick={() =>
            void fire.run(async () => {
              setSaid([]);
              try {
                setSaid((await post<{ lines: string[] }>(`${path}/run`, { uid: row.uid, key: key.current })).lines);
              } catch (err) {
                // Without an answer the request may have been made: the next press repeats it.
                if (!(err instanceof RequestError) || err.code === 0 || err.code >= 500) throw err;
                key.current = crypto.randomUUID();
                throw err;
              }
              key.current = crypto.randomUUID();
              onDone();
            })
          }
        />
        <Button
          label={paused ? "Resume" : "Suspend"}
          name={`${paused ? "Resume" : "Suspend"} ${row.name}`}
          busy={suspend.busy}
          unavailable={unavailable || (row.ended ? "The effect has ended: no due time is left." : "")}
          onClick={() =>
            void suspend.run(async () => {
              setSaid([]);
              const { message } = await post<{ message: string }>(`${path}/suspension`, { uid: row.uid, suspend: !paused });
              if (message) setSaid([message]);
            })
          }
        />
      </div>
      <div role="status" data-test="answer">
        {said.map((line) => (
          <p key={line}>{line}</p>
        ))}
      </div>
      <Failure text={fire.error} onDismiss={fire.clear} />
      <Failure text={suspend.error} onDismiss={suspend.clear} />
    </div>
  );
}

function Times({ list, suspended }: { list: FiringList; suspended: boolean }) {
  if (!list.next?.length) return null;
  return (
    <section aria-label="Next times">
      <h2>Next times</h2>
      {suspended && <p className="dim">They do not fire while the effect is suspended.</p>}
      <ul data-test="next-times">
        {list.next.map((due) => (
          <li key={due}>
            {time(fromMicros(due))} <span className="dim"><Due at={fromMicros(due)} /></span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Firings({ list, namespace }: { list: FiringList; namespace: string }) {
  const { threads } = useLive();
  const names = useMemo(() => new Map([...threads.rows.values()].map((row) => [row.id, row.name])), [threads]);
  return (
    <section aria-label="Firings">
      <h2>Firings</h2>
      {list.firings.length === 0 ? (
        <Empty>It has not fired yet.</Empty>
      ) : (
        <table aria-label="Firings">
          <thead>
            <tr>
              <th scope="col">Due</th>
              <th scope="col">Status</th>
              <th scope="col">Origin</th>
              <th scope="col" className="number">Attempts</th>
              <th scope="col" className="number">Took</th>
              <th scope="col">Thread</th>
              <th scope="col" className="number">Cost</th>
              <th scope="col">Message</th>
            </tr>
          </thead>
          <tbody>
            {list.firings.map((f) => {
              const thread = f.thread || (f.threadId && names.get(f.threadId));
              return (
                <tr key={`${f.due}/${f.threadId ?? ""}`} data-test="firing">
                  <th scope="row">{time(fromMicros(f.due))}</th>
                  <td className={f.status === "failed" ? "bad" : ""}>{f.status}</td>
                  <td>{f.origin}</td>
                  <td className="number">{f.attempts}</td>
                  <td className="number">{f.startedAt && f.endedAt ? duration((f.endedAt - f.startedAt) / 1000) : "–"}</td>
                  <td>{thread ? <a href={addressOf({ view: "thread", namespace, name: thread, tab: "conversation" })}>{thread}</a> : f.threadId}</td>
                  <td className="number">{f.cost ? cost(f.cost) : "–"}</td>
                  <td>{f.error || f.waiting}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Skipped({ list }: { list: FiringList }) {
  if (!list.skipped?.length) return null;
  return (
    <section aria-label="Skipped times">
      <h2>Skipped times</h2>
      <table aria-label="Skipped times">
        <thead>
          <tr>
            <th scope="col">Due</th>
            <th scope="col" className="number">Times</th>
            <th scope="col">Reason</th>
            <th scope="col">More</th>
          </tr>
        </thead>
        <tbody>
          {list.skipped.map((s) => (
            <tr key={`${s.due}/${s.reason}/${s.threadId ?? ""}`} data-test="skipped">
              <th scope="row">
                {time(fromMicros(s.due))}
                {s.count > 1 && ` to ${time(fromMicros(s.until))}`}
              </th>
              <td className="number">{count(s.count)}</td>
              <td>{s.reason}</td>
              <td>{s.detail || s.threadId}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
