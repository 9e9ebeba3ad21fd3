// The runs of a thread, and one of them along a time line.
import { memo, useMemo, useState } from "react";
import { get, threadPath } from "../api";
import { clock, cost, count, duration, fromMicros, plural, time } from "../format";
import { useAction, useLoaded, useNow, useRefreshed } from "../hooks";
import { addressOf } from "../route";
import type { Run, RunList, ThreadEvent, ThreadRecord } from "../types";
import { Button, Empty, Failure, Loading } from "../ui";
import { mostEvents, useRunEvents } from "./runevents";
import { position, scaleOf, spansOf, type Scale, type Span } from "./timeline";

const pageSize = 50;

interface RunsProps {
  namespace: string;
  name: string;
  record: ThreadRecord;
  chosen: string | undefined;
}

export function Runs({ namespace, name, record, chosen }: RunsProps) {
  const newest = record.lastRun;
  const path = `${threadPath(namespace, name, "runs")}?limit=${pageSize}`;
  const list = useRefreshed((signal) => get<RunList>(path, signal), [namespace, name], `${newest?.id} ${newest?.status} ${newest?.steps}`);
  // While the newest page is read again, all that is known stays.
  const [first, setFirst] = useState<RunList>();
  const [known, setKnown] = useState<RunList>();
  if (list.value && list.value !== first) {
    setFirst(list.value);
    setKnown(withFirst(known, list.value));
  }
  const earlier = useAction();
  const runs = known?.runs;
  const shown = chosen ?? runs?.[0]?.id;
  if (!runs) return list.error ? <Failure text={list.error} /> : <Loading what="runs" />;
  if (runs.length === 0) return <Empty>The thread has not run yet.</Empty>;
  return (
    <div className="runs">
      <Failure text={list.error ?? ""} />
      <table aria-label="Runs">
        <thead>
          <tr>
            <th scope="col">Started</th>
            <th scope="col">Status</th>
            <th scope="col">Agent</th>
            <th scope="col" className="number">Steps</th>
            <th scope="col" className="number">Took</th>
            <th scope="col" className="number">Tokens</th>
            <th scope="col" className="number">Cost</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id} aria-current={run.id === shown ? "true" : undefined}>
              <th scope="row">
                <a href={addressOf({ view: "thread", namespace, name, tab: "runs", run: run.id })}>{time(fromMicros(run.startedAt))}</a>
              </th>
              <td title={run.message}>
                {run.status}
                {run.reason && `: ${run.reason}`}
              </td>
              <td>{run.agent}</td>
              <td className="number">{count(run.steps)}</td>
              <td className="number">{run.endedAt ? duration((run.endedAt - run.startedAt) / 1000) : "–"}</td>
              <td className="number">{run.usage ? count((run.usage.inputTokens ?? 0) + (run.usage.outputTokens ?? 0)) : "–"}</td>
              <td className="number">{cost(run.usage?.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Failure text={earlier.error} onDismiss={earlier.clear} />
      {known?.hasMore && (
        <Button
          label="Earlier runs"
          busy={earlier.busy}
          onClick={() =>
            void earlier.run(async () => {
              const page = await get<RunList>(`${path}&offset=${runs.length}`);
              setKnown((now) => now && { runs: union(now.runs, page.runs), hasMore: page.hasMore && page.runs.length > 0 });
            })
          }
        />
      )}
      {shown && <OneRun key={shown} namespace={namespace} name={name} id={shown} listed={runs.find((r) => r.id === shown)} record={record} />}
    </div>
  );
}

/** Returns the runs of both lists, the newest first. Those of `newer` count where both have a run. */
function union(newer: Run[], older: Run[]): Run[] {
  const ids = new Set(newer.map((run) => run.id));
  return [...newer, ...older.filter((run) => !ids.has(run.id))];
}

/** Returns what is known once the first page was read again. The earlier pages stay, unless there may be runs between. */
function withFirst(known: RunList | undefined, first: RunList): RunList {
  const ids = new Set(first.runs.map((run) => run.id));
  if (!first.hasMore || !known?.runs.some((run) => ids.has(run.id))) return first;
  const runs = union(first.runs, known.runs);
  return { runs, hasMore: runs.length > first.runs.length ? known.hasMore : first.hasMore };
}

interface OneRunProps {
  namespace: string;
  name: string;
  id: string;
  listed: Run | undefined;
  record: ThreadRecord;
}

function OneRun({ namespace, name, id, listed, record }: OneRunProps) {
  const fetched = useLoaded((signal) => (listed ? Promise.resolve(undefined) : get<Run>(threadPath(namespace, name, "runs", id), signal)), [namespace, name, id, !listed]);
  const run = listed ?? fetched.value;
  const events = useRunEvents(namespace, name, run, record.lastEvent);
  if (!run) return <Failure text={fetched.error ?? ""} />;
  return (
    <section aria-label={`Run of ${time(fromMicros(run.startedAt))}`}>
      <h2>Time line</h2>
      {run.message && <p className={run.status === "failed" ? "bad" : "dim"}>{run.message}</p>}
      <Failure text={events.error} />
      {events.error && !events.known && <Button label="Try again" onClick={events.again} />}
      {events.cut && <p className="dim">Only the first {count(mostEvents)} events are drawn.</p>}
      {events.known ? (
        <TimeLine run={run} events={events.events} onlyFirst={events.cut || (!!run.endedAt && !events.complete)} namespace={namespace} name={name} />
      ) : (
        !events.error && <Loading what="the events of the run" />
      )}
    </section>
  );
}

/** So many rows of a time line are drawn at first, and more with each press of the button. */
const rowsAtOnce = 300;

interface TimeLineProps {
  run: Run;
  events: readonly ThreadEvent[];
  /** Whether the run has later events that are not known. */
  onlyFirst: boolean;
  namespace: string;
  name: string;
}

/** Draws what a run did. A view that changes for another reason does not draw it again. */
const TimeLine = memo(function TimeLine({ run, events, onlyFirst, namespace, name }: TimeLineProps) {
  // The time moves on only while something does.
  const now = useNow(run.endedAt || onlyFirst ? 0 : 1000);
  const spans = useMemo(() => spansOf(run, events, now, onlyFirst), [run, events, now, onlyFirst]);
  const scale = useMemo(() => scaleOf(spans), [spans]);
  const [limit, setLimit] = useState(rowsAtOnce);
  if (spans.length === 0) return <Empty>The log has no event of this run any more.</Empty>;
  return (
    <div className="timeline" data-test="timeline">
      <Axis scale={scale} />
      <ol>
        {spans.slice(0, limit).map((span, i) => (
          <SpanRow key={i} span={span} scale={scale} namespace={namespace} name={name} />
        ))}
      </ol>
      {spans.length > limit && <Button label="More of the time line" onClick={() => setLimit(limit + rowsAtOnce)} />}
    </div>
  );
});

/** Reports whether two times are on one day of the viewer's time zone. */
function sameDay(a: number, b: number): boolean {
  return new Date(a).toDateString() === new Date(b).toDateString();
}

function Axis({ scale }: { scale: Scale }) {
  const gaps = scale.segments.filter((s) => s.compressed);
  const first = scale.segments[0]?.start ?? 0;
  const last = scale.segments.at(-1)?.end ?? 0;
  const written = sameDay(first, last) ? clock : time;
  return (
    <div className="axis">
      <div className="axis-texts">
        <span>{written(first)}</span>
        <span>
          {duration(last - first)}
          {gaps.length > 0 && `, of which ${plural(gaps.length, "gap")} of ${duration(gaps.reduce((sum, g) => sum + g.end - g.start, 0))} ${gaps.length === 1 ? "is" : "are"} compressed`}
        </span>
        <span>{written(last)}</span>
      </div>
      <div className="gaps" aria-hidden="true">
        {gaps.map((g) => (
          <span key={g.start} className="gap" data-test="gap" title={`${duration(g.end - g.start)}, compressed`} style={{ left: percent(position(scale, g.start)), width: percent(g.width / scale.width) }} />
        ))}
      </div>
    </div>
  );
}

function percent(part: number): string {
  return `${(part * 100).toFixed(3)}%`;
}

function SpanRow({ span, scale, namespace, name }: { span: Span; scale: Scale; namespace: string; name: string }) {
  const left = position(scale, span.start);
  const width = position(scale, span.end) - left;
  const took = span.kind === "input" ? "" : span.open ? `${duration(span.end - span.start)} so far` : duration(span.end - span.start);
  const text = `Step ${span.step}: ${span.label}`;
  return (
    <li className={`span ${span.kind}${span.failed ? " failed" : ""}${span.open ? " open" : ""}`} data-test="span">
      <span className="span-label">
        {span.message ? <a href={addressOf({ view: "thread", namespace, name, tab: "conversation", message: span.message })}>{text}</a> : text}
        {span.failed && <span className="bad"> failed</span>}
      </span>
      <span className="track" aria-hidden="true">
        <span className="bar" style={{ left: percent(left), width: `max(3px, ${percent(width)})` }} />
      </span>
      <span className="number">{took}</span>
    </li>
  );
}
