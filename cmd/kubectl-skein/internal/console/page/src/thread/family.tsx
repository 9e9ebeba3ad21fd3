// A thread with its ancestors and descendants, as a tree.
import { memo, useMemo, useRef, useState } from "react";
import { Age } from "../age";
import { get, threadPath } from "../api";
import { plural } from "../format";
import { useLoaded } from "../hooks";
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

/**
 * Returns the tree that a thread belongs to; undefined when the thread is not in the list. `known` has the nodes of the tree before, by their names. A node
 * in which nothing has changed stays the same object, so that it is not drawn again.
 */
export function familyOf(rows: ReadonlyMap<string, ThreadRow>, namespace: string, name: string, known = new Map<string, FamilyNode>()): FamilyNode | undefined {
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
    const before = known.get(row.name);
    if (before?.row === row && before.children.length === below.length && below.every((c, i) => c === before.children[i])) return before;
    const made = { row, children: below, below: below.reduce((sum, c) => sum + 1 + c.below, 0) };
    known.set(row.name, made);
    return made;
  };
  return node(root);
}

export function Family({ namespace, name }: { namespace: string; name: string }) {
  const { threads } = useLive();
  const known = useRef(new Map<string, FamilyNode>());
  const tree = useMemo(() => familyOf(threads.rows, namespace, name, known.current), [threads, namespace, name]);
  if (threads.error) return <Registry namespace={namespace} name={name} why={threads.error} />;
  if (!tree) return threads.synced ? <Empty>The list of threads does not have this thread any more.</Empty> : <Loading what="threads" />;
  return (
    <div className="family">
      <p className="dim">{tree.below === 0 ? "This thread has no subagents." : `${plural(tree.below, "thread")} below ${tree.row.name}`}</p>
      <ul className="tree" aria-label="Family of the thread">
        <Branch node={tree} here={name} />
      </ul>
    </div>
  );
}

/** So many children are drawn at first. */
const fewChildren = 100;

const Branch = memo(function Branch({ node, here }: { node: FamilyNode; here: string }) {
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
        <span className="dim">
          <Age at={row.active} />
        </span>
      </div>
      {open && children.length > 0 && (
        <ul>
          {children.slice(0, limit).map((child) => (
            <Branch key={child.row.name} node={child} here={here} />
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
});

interface Child {
  reference: string;
  name: string;
  title?: string;
  threadName?: string;
  status: string;
}

interface ChildList {
  children: Child[];
  hasMore: boolean;
}

/** The server gives at most so many children at once. */
const mostOfPage = 1000;

async function readChildren(namespace: string, name: string, signal: AbortSignal): Promise<Child[]> {
  const all: Child[] = [];
  for (;;) {
    const page = await get<ChildList>(`${threadPath(namespace, name, "children")}?limit=${mostOfPage}&offset=${all.length}`, signal);
    all.push(...page.children);
    if (!page.hasMore || page.children.length === 0) return all;
  }
}

/** The subagents by the registry of the thread, for viewers who may not list Thread objects. */
function Registry({ namespace, name, why }: { namespace: string; name: string; why: string }) {
  const list = useLoaded((signal) => readChildren(namespace, name, signal), [namespace, name]);
  const [limit, setLimit] = useState(fewChildren);
  const hidden = (list.value?.length ?? 0) - limit;
  return (
    <div className="family">
      <Failure text={why} />
      <Failure text={list.error ?? ""} />
      {list.value && (
        <ul className="tree" aria-label="Subagents of the thread">
          {list.value.slice(0, limit).map((c) => (
            <li key={c.reference} data-test="family-node">
              <div className="leaf">
                {c.threadName ? <a href={addressOf({ view: "thread", namespace, name: c.threadName, tab: "family" })}>{c.title || c.threadName}</a> : c.title || c.reference}
                <span className="dim">{c.name}</span>
                <span className="dim">{c.status}</span>
              </div>
            </li>
          ))}
          {hidden > 0 && (
            <li>
              <Button label={`${plural(hidden, "more subagent")}`} onClick={() => setLimit(limit + 10 * fewChildren)} />
            </li>
          )}
        </ul>
      )}
    </div>
  );
}
