// Where a conversation is scrolled to.
import { useEffect, useLayoutEffect, useRef } from "react";
import type { Message } from "../types";
import type { Draft } from "./moment";
import type { Older } from "./older";

/** A viewer who is this near to the end, in pixels, is at the end. */
const near = 4;

/** Keeps the newest message in sight while the viewer is at the end, and brings the message that the address names into sight. */
export function useScroll(messages: Message[], draft: Draft | null, jumpTo: string | undefined, older: Older) {
  const ref = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const first = useRef<{ id: string; top: number } | null>(null);
  const jumped = useRef<string | undefined>(undefined);
  useEffect(() => {
    const el = ref.current!;
    const onScroll = () => {
      atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight <= near;
    };
    // The first step upwards leaves the end, also when an answer is drawn before the next one.
    const onWheel = (e: WheelEvent) => {
      if (e.deltaY < 0) atEnd.current = false;
    };
    el.addEventListener("scroll", onScroll, { passive: true });
    el.addEventListener("wheel", onWheel, { passive: true });
    return () => {
      el.removeEventListener("scroll", onScroll);
      el.removeEventListener("wheel", onWheel);
    };
  }, []);
  useLayoutEffect(() => {
    const el = ref.current!;
    const find = (id: string) => el.querySelector<HTMLElement>(`[data-message="${CSS.escape(id)}"]`);
    const wanted = jumpTo && jumped.current !== jumpTo ? jumpTo : undefined;
    const target = wanted ? find(wanted) : null;
    if (target) {
      jumped.current = jumpTo;
      atEnd.current = false;
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    } else if (wanted && older.more) {
      if (!older.loading && !older.error) older.load(); // the message is earlier than what is here
    } else if (atEnd.current) {
      el.scrollTop = el.scrollHeight;
    } else if (first.current && messages[0] && messages[0].id !== first.current.id) {
      // Earlier messages came in above: what is in sight stays where it is.
      const anchor = find(first.current.id);
      if (anchor) el.scrollTop += anchor.offsetTop - first.current.top;
    }
    const head = messages[0] ? find(messages[0].id) : null;
    first.current = head ? { id: messages[0].id, top: head.offsetTop } : null;
  }, [messages, draft, jumpTo, older]);
  return ref;
}
