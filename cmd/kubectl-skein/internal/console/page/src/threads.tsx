// The list of threads, by state.
import { defaultRangeExtractor, useVirtualizer, type Range } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { useViewer } from "./context";
import { count, plural, relative } from "./format";
import { useNow } from "./hooks";
import { keyOf, useLive } from "./live";
import { addressOf } from "./route";
import type { ThreadRow, ThreadState } from "./types";
import { Empty, Failure, Loading, State, stateName, threadStates } from "./ui";

const rowHeight = 44;

export interface Filter {
  states: ReadonlySet<ThreadState>;
  text: string;
  archived: boolean;
  subagents: boolean;
}

/** Reports whether a thread is one that the filter asks for, whatever its state. */
export function matches(row: ThreadRow, filter: Filter): boolean {
  if (row.archived && !filter.archived) return false;
  if (row.parent && !filter.subagents) return false;
  const text = filter.text.trim().toLowerCase();
  return text === "" || [row.name, row.title, row.agent, row.user, row.id, row.namespace].some((field) => field.toLowerCase().includes(text));
}

/** Returns the threads that a filter selects, newest activity first, and how many there are of each state. */
export function select(rows: Iterable<ThreadRow>, filter: Filter): { selected: ThreadRow[]; counts: Map<ThreadState, number> } {
  const counts = new Map<ThreadState, number>();
  const selected: ThreadRow[] = [];
  for (const row of rows) {
    if (!matches(row, filter)) continue;
    counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    if (filter.states.size === 0 || filter.states.has(row.state)) selected.push(row);
  }
  selected.sort((a, b) => b.active - a.active || (keyOf(a) < keyOf(b) ? -1 : 1));
  return { selected, counts };
}

/** What the viewer last chose, and how far the list of which namespace was scrolled: the list is the same when one comes back from a thread. */
const kept: { filter: Filter; namespace: string; scrolled: number } = {
  filter: { states: new Set(), text: "", archived: false, subagents: true },
  namespace: "",
  scrolled: 0,
};

export function Threads() {
  const { namespace } = useViewer();
  const { threads } = useLive();
  const [filter, setFilter] = useState(kept.filter);
  const { states, text, archived, subagents } = filter;
  const change = (part: Partial<Filter>) => {
    kept.filter = { ...filter, ...part };
    setFilter(kept.filter);
  };
  // Typing does not wait for a long list to be drawn.
  const listed = useDeferredValue(threads);
  const sought = useDeferredValue(text);
  const { selected, counts } = useMemo(
    () => select(listed.rows.values(), { states, text: sought, archived, subagents }),
    [listed, states, sought, archived, subagents],
  );
  const toggle = (state: ThreadState) => {
    const next = new Set(states);
    if (!next.delete(state)) next.add(state);
    change({ states: next });
  };
  // The number changes with the cluster all the time. It is read out only when the viewer has changed what is listed.
  const [said, setSaid] = useState("");
  const saidOf = useRef(filter);
  useEffect(() => {
    if (saidOf.current === filter || sought !== text) return;
    saidOf.current = filter;
    setSaid(plural(selected.length, "thread"));
  }, [filter, sought, text, selected]);
  return (
    <div className="view threads">
      <div className="toolbar">
        <h1>Threads</h1>
        <input type="search" aria-label="Find threads by name, title, agent or user" placeholder="Find by name, title, agent, user" value={text} onChange={(e) => change({ text: e.target.value })} />
        <label>
          <input type="checkbox" checked={subagents} onChange={(e) => change({ subagents: e.target.checked })} /> Subagents
        </label>
        <label>
          <input type="checkbox" checked={archived} onChange={(e) => change({ archived: e.target.checked })} /> Archived
        </label>
        <span className="total" data-test="total">
          {plural(selected.length, "thread")}
          {!threads.synced && !threads.error && ", reading…"}
        </span>
        <span className="unseen" role="status" data-test="said">
          {said}
        </span>
      </div>
      <div className="chips" role="group" aria-label="Only threads in these states">
        {threadStates.map((state) => (
          <button key={state} type="button" className={`chip state-${state}`} aria-pressed={states.has(state)} onClick={() => toggle(state)}>
            {stateName(state)} <span className="n">{count(counts.get(state) ?? 0)}</span>
          </button>
        ))}
      </div>
      <Failure text={threads.error} />
      {selected.length > 0 ? (
        <Table key={namespace} rows={selected} namespace={namespace} />
      ) : threads.synced ? (
        <Empty>{threads.rows.size > 0 ? "No thread matches." : "There is no thread. Make one with: kubectl skein create --agent AGENT --message TEXT"}</Empty>
      ) : (
        !threads.error && <Loading what="threads" />
      )}
    </div>
  );
}

/** The rows that are in sight. Only these are in the document, however many threads there are. */
function Table({ rows, namespace }: { rows: ThreadRow[]; namespace: string }) {
  const withNamespace = namespace === "";
  const now = useNow();
  const scroller = useRef<HTMLDivElement>(null);
  // The row that had the focus last. It stays in the document wherever activity moves it, since the focus would be lost with it.
  const [current, setCurrent] = useState("");
  const at = useMemo(() => (current ? rows.findIndex((row) => keyOf(row) === current) : -1), [rows, current]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 10,
    getItemKey: (i) => keyOf(rows[i]),
    rangeExtractor: (range: Range) => {
      const shown = defaultRangeExtractor(range);
      return at < 0 || shown.includes(at) ? shown : [...shown, at].sort((a, b) => a - b);
    },
    initialOffset: () => (kept.namespace === namespace ? kept.scrolled : 0),
  });
  const onScroll = () => {
    kept.namespace = namespace;
    kept.scrolled = scroller.current?.scrollTop ?? 0;
  };
  const columns = ["Thread", ...(withNamespace ? ["Namespace"] : []), "Agent", "State", "Waits for", "Last run", "Messages", "Active"];

  // The arrow keys move between rows that are not drawn yet, too.
  const onKeyDown = (e: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? rowHeight) / rowHeight) - 2);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 }[e.key];
    if (to === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    const index = Math.min(Math.max(to, 0), rows.length - 1);
    virtual.scrollToIndex(index);
    const key = keyOf(rows[index]);
    setCurrent(key);
    focusWhenDrawn(scroller.current, key);
  };
  return (
    <div className="table" role="table" aria-label="Threads" aria-rowcount={rows.length + 1} aria-colcount={columns.length}>
      <div role="rowgroup">
        <div className={`row head-row${withNamespace ? " wide" : ""}`} role="row" aria-rowindex={1}>
          {columns.map((name) => (
            <span key={name} role="columnheader" className={name === "Messages" || name === "Active" ? "number" : ""}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div className="scroller" ref={scroller} role="presentation" onKeyDown={onKeyDown} onScroll={onScroll}>
        <div role="rowgroup" className="rows" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => (
            <Row
              key={item.key}
              row={rows[item.index]}
              index={item.index}
              top={item.start}
              now={now}
              withNamespace={withNamespace}
              onFocus={() => setCurrent(keyOf(rows[item.index]))}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

function focusWhenDrawn(scroller: HTMLElement | null, key: string, frames = 10): void {
  const link = scroller?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`);
  if (link) link.focus({ preventScroll: true });
  else if (frames > 0) requestAnimationFrame(() => focusWhenDrawn(scroller, key, frames - 1));
}

interface RowProps {
  row: ThreadRow;
  index: number;
  top: number;
  now: number;
  withNamespace: boolean;
  onFocus: () => void;
}

function Row({ row, index, top, now, withNamespace, onFocus }: RowProps) {
  const address = addressOf({ view: "thread", namespace: row.namespace, name: row.name, tab: "conversation" });
  return (
    <div className={`row${withNamespace ? " wide" : ""}`} role="row" aria-rowindex={index + 2} style={{ transform: `translateY(${top}px)`, height: rowHeight }} data-test="thread-row">
      <span role="cell" className="name">
        <a href={address} data-key={keyOf(row)} onFocus={onFocus} title={row.name}>
          {row.title || row.name}
        </a>
        {row.title && <small>{row.name}</small>}
        {row.parent && <small>below {row.parent}</small>}
        {row.archived && <small>archived</small>}
      </span>
      {withNamespace && <span role="cell">{row.namespace}</span>}
      <span role="cell">{row.agent}</span>
      <span role="cell">
        <State state={row.state} />
      </span>
      <span role="cell" className={row.waits?.needsPerson ? "needs-person" : ""} title={row.waits?.message}>
        {row.waits?.reason ?? ""}
      </span>
      <span role="cell" title={row.reason}>
        {row.outcome}
      </span>
      <span role="cell" className="number">
        {count(row.messages)}
        {row.queued > 0 && ` +${count(row.queued)}`}
      </span>
      <span role="cell" className="number">
        {relative(row.active, now)}
      </span>
    </div>
  );
}
