// Sends what a person decided about a call.
import { postText, threadPath } from "./api";
import type { ThreadName } from "./calls";

export interface Decision {
  decision: "approve" | "refuse";
  reason: string;
  /** The JSON text that replaces the arguments of the model, or null to keep those. It is sent as it is, so that no number is rounded. */
  arguments: string | null;
}

export async function decide(thread: ThreadName, call: string, d: Decision): Promise<void> {
  const fields = [`"decision":${JSON.stringify(d.decision)}`];
  if (d.reason) fields.push(`"reason":${JSON.stringify(d.reason)}`);
  if (d.arguments !== null) fields.push(`"arguments":${d.arguments}`);
  await postText(threadPath(thread.namespace, thread.name, "approvals", call), `{${fields.join(",")}}`);
}
