// Small parts that all views use.
import { Component, useEffect, useId, useRef, type ReactNode } from "react";
import type { ThreadState } from "./types";

/** Says that something went wrong. Screen readers read it at once. */
export function Failure({ text, onDismiss }: { text: string; onDismiss?: () => void }) {
  if (!text) return null;
  return (
    <div className="banner failure" role="alert">
      <span>{text}</span>
      {onDismiss && (
        <button type="button" className="plain" onClick={onDismiss} aria-label="Dismiss">
          ×
        </button>
      )}
    </div>
  );
}

export function Notice({ children }: { children: ReactNode }) {
  return (
    <div className="banner notice" role="status">
      {children}
    </div>
  );
}

const stateNames: Record<ThreadState, string> = {
  Pending: "Pending",
  NotReady: "Not ready",
  Idle: "Idle",
  Running: "Running",
  Waiting: "Waiting",
  Parked: "Parked",
  Terminated: "Terminated",
  Deleting: "Deleting",
};

export const threadStates = Object.keys(stateNames) as ThreadState[];

export function stateName(state: ThreadState): string {
  return stateNames[state] ?? state;
}

/** A state as a word with a colour. The word says all that the colour says. */
export function State({ state }: { state: ThreadState }) {
  return <span className={`state state-${state}`}>{stateName(state)}</span>;
}

/** What is known of an object, as labels and texts. What is unknown is left out. */
export function Facts({ facts }: { facts: [label: string, text: string | undefined][] }) {
  return (
    <dl className="facts">
      {facts.map(
        ([label, text]) =>
          text && (
            <div key={label}>
              <dt>{label}</dt>
              <dd data-test={`fact-${label}`}>{text}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

export function Loading({ what }: { what: string }) {
  return (
    <p className="empty" role="status">
      Reading {what}…
    </p>
  );
}

export interface ButtonProps {
  label: string;
  /** What the button does to what, where the label alone does not say it. */
  name?: string;
  busy?: boolean;
  /** Why it cannot be used. It stays focusable, so that everyone learns why. */
  unavailable?: string;
  kind?: "primary" | "danger";
  /** It gets the button, for views that give the focus back to it. */
  onClick: (button: HTMLButtonElement) => void;
}

export function Button({ label, name, busy, unavailable, kind, onClick }: ButtonProps) {
  const id = useId();
  return (
    <>
      <button
        type="button"
        className={kind}
        aria-label={name}
        aria-disabled={busy || !!unavailable}
        aria-describedby={unavailable ? id : undefined}
        title={unavailable}
        onClick={(e) => !busy && !unavailable && onClick(e.currentTarget)}
      >
        {label}
      </button>
      {unavailable && (
        <span id={id} hidden>
          {unavailable}
        </span>
      )}
    </>
  );
}

/** Asks before something that cannot be undone. The browser keeps the focus inside, and Escape cancels. */
export function Dialog({ title, children, onClose }: { title: string; children: ReactNode; onClose: () => void }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

/** Shows what went wrong in a view, and leaves the others as they are. */
export class Boundary extends Component<{ children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return (
      <div className="view">
        <Failure text={`This view cannot be shown: ${this.state.error.message}. Please report it with what you did.`} />
        <Button label="Show it again" onClick={() => this.setState({ error: undefined })} />
      </div>
    );
  }
}
