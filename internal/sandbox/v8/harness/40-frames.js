// Frames of package protocol over standard input and output.

const FRAME = { open: 1, reply: 2, terminate: 3, describe: 4, invoke: 5, call: 6, ready: 16, started: 17, hostCall: 18, report: 19, log: 20, settled: 21, done: 22 };
const MAX_FRAME = MAX_BYTES + (8 << 20);
const LARGE = 64 << 10;

// send writes the content of a writer as a frame and empties the writer. It returns false when that is too large to
// cross.
function send(type, w = new Writer()) {
  const size = w.size + 1;
  if (size > MAX_FRAME) return false;
  const raw = w.frame();
  raw[0] = size >>> 24;
  raw[1] = (size >>> 16) & 255;
  raw[2] = (size >>> 8) & 255;
  raw[3] = size & 255;
  raw[4] = type;
  const n = typedLength(raw);
  for (let at = writeSync(raw); at < n; ) at += writeSync(bytesPart(raw, at));
  if (n > LARGE) w.free();
  return true;
}

const tooLarge = (w) => `a sandbox message of ${w.size} bytes is too large: at most ${MAX_FRAME >> 20} MiB cross at once`;

// receive passes each frame to handle(type, content), one after the other, until the input ends.
function receive(handle, ended) {
  const chunk = new $Uint8Array(LARGE);
  let raw = new $Uint8Array(LARGE); // the received part of incomplete frames
  let have = 0;

  const size = () => raw[0] * 0x1000000 + raw[1] * 0x10000 + raw[2] * 0x100 + raw[3];
  const take = (bytes) => {
    const n = typedLength(bytes);
    let need = have + n;
    if (have >= 4) need = max(need, size() + 4);
    if (need > typedLength(raw)) {
      const next = new $Uint8Array(need);
      bytesSet(next, bytesPart(raw, 0, have));
      raw = next;
    }
    bytesSet(raw, bytes, have);
    have += n;
    let at = 0;
    while (have - at >= 5) {
      const frame = raw[at] * 0x1000000 + raw[at + 1] * 0x10000 + raw[at + 2] * 0x100 + raw[at + 3];
      if (have - at < frame + 4) break;
      const content = bytesPart(raw, at + 5, at + 4 + frame);
      const type = raw[at + 4];
      at += frame + 4;
      if (frame <= LARGE) {
        handle(type, bytesCopy(content));
        continue;
      }
      // A large frame keeps the buffer, and later frames use a new one.
      const rest = new $Uint8Array(max(have - at, LARGE));
      bytesSet(rest, bytesPart(raw, at, have));
      raw = rest;
      have -= at;
      at = 0;
      handle(type, content);
    }
    if (at > 0) {
      bytesWithin(raw, 0, at, have);
      have -= at;
    }
  };
  const next = () => {
    then(read(chunk), (n) => {
      if (n === null) return ended();
      take(bytesPart(chunk, 0, n));
      next();
    }, ended);
  };
  next();
}

function writeError(w, e) {
  w.text(cut(e.name, 1000));
  w.text(cut(e.message, 16000));
  w.text(cut(e.stack ?? '', 16000));
  w.text(cut(e.specifier ?? '', 1000));
  w.uint(0);
  w.uint(0);
}

// writeOutcome writes the result of a call: { value } or { error }. It throws for a value that cannot cross.
function writeOutcome(w, o) {
  w.flag(o.error === undefined);
  if (o.error === undefined) w.within(() => encodeTo(w, o.value));
  else writeError(w, o.error);
}

const failure = (name, message) => ({ __proto__: null, error: { __proto__: null, name, message } });
