// Sends what a person decided about a call.
import { RequestError, threadPath } from "./api";
import type { ThreadName } from "./calls";
import type { Status } from "./types";

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
  let response: Response;
  try {
    response = await fetch(threadPath(thread.namespace, thread.name, "approvals", call), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: `{${fields.join(",")}}`,
    });
  } catch {
    throw new RequestError(0, "Unreachable", "The console does not answer. Is kubectl skein console still running?");
  }
  if (!response.ok) throw refusal(response.status, await response.text().catch(() => ""));
}

function refusal(code: number, text: string): RequestError {
  try {
    const status = JSON.parse(text) as Status;
    if (status.message) return new RequestError(code, status.reason ?? "", status.message);
  } catch {
    // It is not JSON: the text itself is all there is.
  }
  return new RequestError(code, "", text.trim() || `The server answered ${code}. Try again in a moment.`);
}
