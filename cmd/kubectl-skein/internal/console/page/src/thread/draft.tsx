// The answer that a model is writing.
import { useDeferredValue, useMemo } from "react";
import { Markdown } from "../markdown";
import type { Draft } from "./moment";

/**
 * Splits a text at its blank lines, but not within code between fences. Only the last part grows, so only that is parsed again for each piece of an
 * answer.
 */
export function partsOf(text: string): string[] {
  const parts: string[] = [];
  let part = "";
  let fence = "";
  for (const line of text.split(/(?<=\n)/)) {
    const mark = /^ {0,3}(```+|~~~+)/.exec(line)?.[1];
    if (mark && !fence) fence = mark;
    else if (mark && mark.startsWith(fence)) fence = "";
    part += line;
    if (!fence && line.trim() === "" && part.trim() !== "") {
      parts.push(part);
      part = "";
    }
  }
  return part === "" ? parts : [...parts, part];
}

export function DraftView({ draft }: { draft: Draft }) {
  // What the viewer types does not wait for this.
  const text = useDeferredValue(draft.text);
  const parts = useMemo(() => partsOf(text), [text]);
  return (
    <article className="message assistant draft" aria-label="Answer that is being written" aria-busy="true" data-test="draft">
      <header>
        <span className="who">agent</span> <span className="dim">{draft.text === "" && draft.reasoning !== "" ? "thinks…" : "writes…"}</span>
      </header>
      {draft.partial && <p className="dim">The beginning is shown once the answer is whole.</p>}
      {draft.reasoning !== "" && draft.text === "" && <pre className="dim">{draft.reasoning}</pre>}
      {parts.map((part, i) => (
        <Markdown key={i} text={part} />
      ))}
    </article>
  );
}
