// The state and the key-values of a thread.
import { pretty } from "../format";
import { Empty } from "../ui";

export function StateOfThread({ state, values }: { state: Record<string, unknown> | undefined; values: Record<string, unknown> | undefined }) {
  return (
    <div className="state-view">
      <Entries title="State" entries={state} none="No code has kept state in this thread." />
      <Entries title="Key-values" entries={values} none="The thread has no key-values." />
    </div>
  );
}

function Entries({ title, entries = {}, none }: { title: string; entries: Record<string, unknown> | undefined; none: string }) {
  const keys = Object.keys(entries);
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {keys.length === 0 ? (
        <Empty>{none}</Empty>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Key</th>
              <th scope="col">Value</th>
            </tr>
          </thead>
          <tbody>
            {keys.map((key) => (
              <tr key={key}>
                <th scope="row">
                  <code>{key}</code>
                </th>
                <td>
                  <pre tabIndex={0} aria-label={`Value of ${key}`}>
                    {pretty(JSON.stringify(entries[key]))}
                  </pre>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
