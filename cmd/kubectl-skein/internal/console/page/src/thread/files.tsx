// The files of a thread.
import { useState } from "react";
import { filePath, get, getText, threadPath } from "../api";
import { bytes, fromMicros, time } from "../format";
import { useLoaded } from "../hooks";
import type { FileList, FileRecord } from "../types";
import { Button, Empty, Failure, Loading } from "../ui";

const pageSize = 500;
const longestPreview = 64 * 1024;

interface FilesProps {
  namespace: string;
  name: string;
  /** The version of the thread: files may have changed when it grows. */
  version: number;
}

export function Files({ namespace, name, version }: FilesProps) {
  const [limit, setLimit] = useState(pageSize);
  const [shown, setShown] = useState<FileRecord | null>(null);
  const list = useLoaded((signal) => readFiles(namespace, name, limit, signal), [namespace, name, limit, version]);
  // While a newer list is read, the old one stays.
  const [last, setLast] = useState<FileList>();
  if (list.value && list.value !== last) setLast(list.value);
  const files = (list.value ?? last)?.files.filter((f) => !f.isDirectory);
  return (
    <div className="files">
      <Failure text={list.error ?? ""} />
      {!files ? (
        !list.error && <Loading what="files" />
      ) : files.length === 0 ? (
        <Empty>The thread has no files.</Empty>
      ) : (
        <table aria-label="Files">
          <thead>
            <tr>
              <th scope="col">Path</th>
              <th scope="col">Type</th>
              <th scope="col" className="number">Size</th>
              <th scope="col">Written</th>
              <th scope="col">
                <span className="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {files.map((f) => (
              <tr key={f.path}>
                <th scope="row">
                  <a href={filePath(namespace, name, f.path)} download>
                    {f.path}
                  </a>
                </th>
                <td>{f.mimeType}</td>
                <td className="number">{bytes(f.size)}</td>
                <td>{time(fromMicros(f.createdAt))}</td>
                <td>
                  <Button label="Show" name={`Show ${f.path}`} onClick={() => setShown(f)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {list.value?.hasMore && <Button label="More files" onClick={() => setLimit(limit + pageSize)} />}
      {shown && <Preview key={shown.path} namespace={namespace} name={name} file={shown} onClose={() => setShown(null)} />}
    </div>
  );
}

async function readFiles(namespace: string, name: string, limit: number, signal: AbortSignal): Promise<FileList> {
  const all: FileList = { files: [], hasMore: true };
  while (all.hasMore && all.files.length < limit) {
    const page = await get<FileList>(`${threadPath(namespace, name, "files")}?recursive=true&limit=${pageSize}&offset=${all.files.length}`, signal);
    all.files.push(...page.files);
    all.hasMore = page.hasMore && page.files.length > 0;
  }
  return all;
}

const pictures = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Shows the beginning of a file as text, or a small picture. Nothing of a file ever runs. */
function Preview({ namespace, name, file, onClose }: { namespace: string; name: string; file: FileRecord; onClose: () => void }) {
  const picture = pictures.has(file.mimeType ?? "");
  const path = filePath(namespace, name, file.path);
  const text = useLoaded((signal) => (picture ? Promise.resolve({ text: "", more: false }) : getText(path, longestPreview, signal)), [path, picture]);
  return (
    <section className="preview-pane" aria-label={`Content of ${file.path}`}>
      <header>
        <h2>{file.path}</h2>
        <Button label="Close" name={`Close ${file.path}`} onClick={onClose} />
      </header>
      <Failure text={text.error ?? ""} />
      {picture ? (
        <img src={`${path}?thumbnail=true`} alt={`Small picture of ${file.path}`} />
      ) : (
        text.value && (
          <pre tabIndex={0} aria-label={`Text of ${file.path}`} data-test="file-text">
            {text.value.text}
            {text.value.more && "\n…"}
          </pre>
        )
      )}
    </section>
  );
}
