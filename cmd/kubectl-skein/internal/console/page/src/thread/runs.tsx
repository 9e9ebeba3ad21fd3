// The runs of a thread, and one of them along a time line.
import { useState } from "react";
import { get, readEvents, threadPath } from "../api";
import { clock, cost, count, duration, fromMicros, plural, time } from "../format";
import { useLoaded, useNow } from "../hooks";
import { addressOf } from "../route";
import type { Run, RunList, ThreadEvent, ThreadRecord } from "../types";
import { Button, Empty, Failure, Loading } from "../ui";
import { position, scaleOf, spansOf, type Scale, type Span } from "./timeline";

const pageSize = 50;

interface RunsProps {
  namespace: string;
  name: string;
  record: ThreadRecord;
  chosen: string | undefined;
}

export function Runs({ namespace, name, record, chosen }: RunsProps) {
  const [limit, setLimit] = useState(pageSize);
  const newest = record.lastRun;
  const list = useLoaded((signal) => get<RunList>(`${threadPath(namespace, name, "runs")}?limit=${limit}`, signal), [namespace, name, limit, newest?.id, newest?.status, newest?.steps]);
  const [last, setLast] = useState<RunList>();
  if (list.value && list.value !== last) setLast(list.value);
  const runs = (list.value ?? last)?.runs;
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
      {list.value?.hasMore && <Button label="Earlier runs" onClick={() => setLimit(Math.min(limit + pageSize, 1000))} />}
      {shown && <OneRun key={shown} namespace={namespace} name={name} id={shown} listed={runs.find((r) => r.id === shown)} record={record} />}
    </div>
  );
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
  const events = useLoaded((signal) => (run ? eventsOf(namespace, name, run, record.lastEvent, signal) : Promise.resolve([])), [namespace, name, run?.id, run?.status, run?.endedAt, run?.steps, run?.endedAt ? 0 : record.messageCount]);
  const [last, setLast] = useState<ThreadEvent[]>();
  if (events.value && events.value !== last) setLast(events.value);
  const now = useNow();
  if (!run) return <Failure text={fetched.error ?? ""} />;
  const known = events.value ?? last;
  return (
    <section aria-label={`Run of ${time(fromMicros(run.startedAt))}`}>
      <h2>Time line</h2>
      {run.message && <p className={run.status === "failed" ? "bad" : "dim"}>{run.message}</p>}
      <Failure text={events.error ?? ""} />
      {known ? <TimeLine spans={spansOf(run, known, now)} namespace={namespace} name={name} /> : !events.error && <Loading what="the events of the run" />}
    </section>
  );
}

/** A search ends when the beginning of a run is known to so many events. */
const near = 64;
/** The clock of the run's record and that of its events may differ by the time that a transaction takes. */
const margin = 1_000_000;
/** More events of one run are not drawn. */
const mostEvents = 20_000;

/**
 * Reads the events of a run. The log has no index of runs, so their beginning is searched for by time, which takes a few short reads, however long
 * the log is.
 */
async function eventsOf(namespace: string, name: string, run: Run, newest: number, signal: AbortSignal): Promise<ThreadEvent[]> {
  let from = 0;
  let to = newest;
  while (to - from > near) {
    const middle = Math.floor((from + to) / 2);
    let at = Infinity;
    await readEvents(namespace, name, middle, (event: ThreadEvent) => ((at = event.createdAt), false), signal);
    if (at >= run.startedAt - margin) to = middle;
    else from = middle;
  }
  const events: ThreadEvent[] = [];
  await readEvents(
    namespace,
    name,
    from,
    (event: ThreadEvent) => {
      if (event.runId === run.id && event.type !== "message.delta") events.push(event);
      const over = (event.type === "run.ended" && event.runId === run.id) || (run.endedAt !== undefined && run.endedAt > 0 && event.createdAt > run.endedAt + margin);
      return !over && events.length < mostEvents;
    },
    signal,
  );
  return events;
}

function TimeLine({ spans, namespace, name }: { spans: Span[]; namespace: string; name: string }) {
  if (spans.length === 0) return <Empty>The log has no event of this run any more.</Empty>;
  const scale = scaleOf(spans);
  return (
    <div className="timeline" data-test="timeline">
      <Axis scale={scale} />
      <ol>
        {spans.map((span, i) => (
          <SpanRow key={i} span={span} scale={scale} namespace={namespace} name={name} />
        ))}
      </ol>
    </div>
  );
}

function Axis({ scale }: { scale: Scale }) {
  const gaps = scale.segments.filter((s) => s.compressed);
  const first = scale.segments[0]?.start ?? 0;
  const last = scale.segments.at(-1)?.end ?? 0;
  return (
    <div className="axis">
      <div className="axis-texts">
        <span>{clock(first)}</span>
        <span>
          {duration(last - first)}
          {gaps.length > 0 && `, of which ${plural(gaps.length, "gap")} of ${duration(gaps.reduce((sum, g) => sum + g.end - g.start, 0))} ${gaps.length === 1 ? "is" : "are"} compressed`}
        </span>
        <span>{clock(last)}</span>
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
