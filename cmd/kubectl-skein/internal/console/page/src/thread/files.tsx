// The files of a thread.
import { useEffect, useRef, useState } from "react";
import { filePath, get, getBlob, getText, threadPath } from "../api";
import { bytes, fromMicros, time } from "../format";
import { useLoaded, useRefreshed } from "../hooks";
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
  const opener = useRef<HTMLButtonElement>(null);
  // A model that is writing changes the version several times a second.
  const list = useRefreshed((signal) => readFiles(namespace, name, limit, signal), [namespace, name, limit], version);
  // While a newer list is read, the old one stays.
  const [last, setLast] = useState<FileList>();
  if (list.value && list.value !== last) setLast(list.value);
  const known = list.value ?? last;
  const files = known?.files.filter((f) => !f.isDirectory);
  const show = (file: FileRecord, button: HTMLButtonElement) => {
    opener.current = button;
    setShown(file);
  };
  const close = () => {
    setShown(null);
    opener.current?.focus();
  };
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
                  <Button label="Show" name={`Show ${f.path}`} onClick={(button) => show(f, button)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {known?.hasMore && <Button label="More files" busy={list.loading && known.files.length < limit} onClick={() => setLimit(limit + pageSize)} />}
      {shown && <Preview key={shown.path} namespace={namespace} name={name} file={files?.find((f) => f.path === shown.path) ?? shown} onClose={close} />}
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

/** Returns the address of an image for as long as the view shows it. */
function useAddressOf(image: Blob | undefined): string {
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (!image?.size) return;
    const made = URL.createObjectURL(image);
    setAddress(made);
    return () => {
      setAddress("");
      URL.revokeObjectURL(made);
    };
  }, [image]);
  return address;
}

interface Content {
  text: string;
  more: boolean;
  image?: Blob;
}

/** Shows the beginning of a file as text, or a small picture. Nothing of a file ever runs. A file that is written again is read again. */
function Preview({ namespace, name, file, onClose }: { namespace: string; name: string; file: FileRecord; onClose: () => void }) {
  const picture = pictures.has(file.mimeType ?? "");
  const path = filePath(namespace, name, file.path);
  const read = async (signal: AbortSignal): Promise<Content> =>
    picture ? { text: "", more: false, image: await getBlob(`${path}?thumbnail=true`, signal) } : getText(path, longestPreview, signal);
  const loaded = useLoaded(read, [path, picture, file.createdAt, file.size]);
  const [last, setLast] = useState<Content>();
  if (loaded.value && loaded.value !== last) setLast(loaded.value);
  const content = loaded.value ?? last;
  const address = useAddressOf(content?.image);
  // The pane is below the list, so the focus moves to it: keyboards go on from there, and screen readers say what opened.
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <section className="preview-pane" aria-label={`Content of ${file.path}`}>
      <header>
        <h2 ref={heading} tabIndex={-1}>
          {file.path}
        </h2>
        <Button label="Close" name={`Close ${file.path}`} onClick={onClose} />
      </header>
      <Failure text={loaded.error ?? ""} />
      {!content && !loaded.error && <Loading what="the file" />}
      {content?.image ? (
        address ? <img src={address} alt={`Small picture of ${file.path}`} /> : !content.image.size && <Empty>There is no small picture of this file.</Empty>
      ) : (
        content && (
          <pre tabIndex={0} aria-label={`Text of ${file.path}`} data-test="file-text">
            {content.text}
            {content.more && "\n…"}
          </pre>
        )
      )}
    </section>
  );
}
