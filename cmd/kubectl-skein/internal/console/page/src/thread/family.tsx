// A thread with its ancestors and descendants, as a tree.
import { useMemo, useState } from "react";
import { get, threadPath } from "../api";
import { plural, relative } from "../format";
import { useLoaded, useNow } from "../hooks";
import { useLive } from "../live";
import { addressOf } from "../route";
import type { ThreadRow } from "../types";
import { Button, Empty, Failure, Loading, State } from "../ui";

export interface FamilyNode {
  row: ThreadRow;
  children: FamilyNode[];
  /** How many threads are below it. */
  below: number;
}

/** Returns the tree that a thread belongs to; undefined when the thread is not in the list. */
export function familyOf(rows: ReadonlyMap<string, ThreadRow>, namespace: string, name: string): FamilyNode | undefined {
  const children = new Map<string, ThreadRow[]>();
  for (const row of rows.values()) {
    if (row.namespace !== namespace || !row.parent) continue;
    const siblings = children.get(row.parent);
    if (siblings) siblings.push(row);
    else children.set(row.parent, [row]);
  }
  const start = rows.get(`${namespace}/${name}`);
  if (!start) return undefined;
  const seen = new Set([start.name]);
  let root = start;
  for (;;) {
    const above = root.parent ? rows.get(`${namespace}/${root.parent}`) : undefined;
    if (!above || seen.has(above.name)) break;
    seen.add(above.name);
    root = above;
  }
  const drawn = new Set<string>();
  const node = (row: ThreadRow): FamilyNode => {
    drawn.add(row.name);
    const below = (children.get(row.name) ?? []).filter((c) => !drawn.has(c.name)).sort((a, b) => a.created - b.created || (a.name < b.name ? -1 : 1)).map(node);
    return { row, children: below, below: below.reduce((sum, c) => sum + 1 + c.below, 0) };
  };
  return node(root);
}

export function Family({ namespace, name }: { namespace: string; name: string }) {
  const { threads } = useLive();
  const now = useNow();
  const tree = useMemo(() => familyOf(threads.rows, namespace, name), [threads, namespace, name]);
  if (threads.error) return <Registry namespace={namespace} name={name} why={threads.error} />;
  if (!tree) return threads.synced ? <Empty>The list of threads does not have this thread any more.</Empty> : <Loading what="threads" />;
  return (
    <div className="family">
      <p className="dim">{tree.below === 0 ? "This thread has no subagents." : `${plural(tree.below, "thread")} below ${tree.row.name}`}</p>
      <ul className="tree" aria-label="Family of the thread">
        <Branch node={tree} here={name} now={now} />
      </ul>
    </div>
  );
}

/** So many children are drawn at first. */
const fewChildren = 100;

function Branch({ node, here, now }: { node: FamilyNode; here: string; now: number }) {
  const [open, setOpen] = useState(true);
  const [limit, setLimit] = useState(fewChildren);
  const { row, children } = node;
  const hidden = children.length - limit;
  return (
    <li data-test="family-node">
      <div className={row.name === here ? "leaf here" : "leaf"}>
        {children.length > 0 ? (
          <button type="button" className="plain fold" aria-expanded={open} aria-label={`Subagents of ${row.name}`} onClick={() => setOpen(!open)}>
            {open ? "▾" : "▸"}
          </button>
        ) : (
          <span className="fold" />
        )}
        <a href={addressOf({ view: "thread", namespace: row.namespace, name: row.name, tab: "family" })} title={row.name} aria-current={row.name === here ? "true" : undefined}>
          {row.title || row.name}
        </a>
        {row.reference && <span className="dim">{row.reference}</span>}
        <span className="dim">agent {row.agent}</span>
        <State state={row.state} />
        {row.waits && (
          <span className={row.waits.needsPerson ? "needs-person" : "dim"} title={row.waits.message}>
            {row.waits.reason}
          </span>
        )}
        {row.outcome && <span className="dim">last run {row.outcome}</span>}
        <span className="dim">{relative(row.active, now)}</span>
      </div>
      {open && children.length > 0 && (
        <ul>
          {children.slice(0, limit).map((child) => (
            <Branch key={child.row.name} node={child} here={here} now={now} />
          ))}
          {hidden > 0 && (
            <li>
              <Button label={`${plural(hidden, "more subagent")}`} onClick={() => setLimit(limit + 10 * fewChildren)} />
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

interface Child {
  reference: string;
  name: string;
  title?: string;
  threadName?: string;
  status: string;
}

/** The subagents by the registry of the thread, for viewers who may not list Thread objects. */
function Registry({ namespace, name, why }: { namespace: string; name: string; why: string }) {
  const list = useLoaded((signal) => get<{ children: Child[] }>(threadPath(namespace, name, "children"), signal), [namespace, name]);
  return (
    <div className="family">
      <Failure text={why} />
      <Failure text={list.error ?? ""} />
      {list.value && (
        <ul className="tree" aria-label="Subagents of the thread">
          {list.value.children.map((c) => (
            <li key={c.reference} data-test="family-node">
              <div className="leaf">
                {c.threadName ? <a href={addressOf({ view: "thread", namespace, name: c.threadName, tab: "family" })}>{c.title || c.threadName}</a> : c.title || c.reference}
                <span className="dim">{c.name}</span>
                <span className="dim">{c.status}</span>
              </div>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
