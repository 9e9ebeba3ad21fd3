// What all views know of the viewer.
import { createContext, useContext } from "react";
import type { Right, Rights, Session } from "./types";

export interface Viewer {
  session: Session;
  /** The namespace that is shown; "" for all. */
  namespace: string;
}

export const ViewerContext = createContext<Viewer | null>(null);

export function useViewer(): Viewer {
  const viewer = useContext(ViewerContext);
  if (!viewer) throw new Error("there is no viewer");
  return viewer;
}

/** Returns why the viewer may not do something; "" when it may, or while that is not known. The server decides in any case. */
export function lacking(rights: Rights | undefined, right: Right): string {
  if (!rights || rights.rights[right]) return "";
  const missing = rights.missing?.[right];
  return missing ? `You lack the right to ${missing}` : "You lack the right to do this in this namespace.";
}
