// The host's side of the definition script (package lib): the object that the script receives as sys.

const MAX_REFS = 10_000;
const MAX_TIMERS = 1000;
const MAX_TIMEOUT = 24 * 60 * 60 * 1000;

const refs = new $Map(); // functions that the host may call, by reference
let lastRef = 0;
const running = new $Map(); // timers, by id
let lastTimer = 0;

function sysOf(statics) {
  return {
    __proto__: null,
    statics,

    // call(invocation, method, args, functions): functions tells whether args may contain functions.
    call(invocation, method, args, functions) {
      const to = { __proto__: null, method: cut($String(method), 1000), invocation: cut($String(invocation), 1000) };
      if (!functions) return hostCall(to, args);
      if (mapSize(refs) >= MAX_REFS) throw new errorClasses.RangeError('too many functions are handed to the host: at most 10000');
      const handed = [];
      const hand = (f) => {
        mapSet(refs, ++lastRef, f);
        push(handed, lastRef);
        return lastRef;
      };
      return hostCall(to, args, hand, () => {
        for (let i = 0; i < handed.length; i++) mapDelete(refs, handed[i]);
      });
    },

    setTimer(f, ms, repeat, args) {
      if (typeof f !== 'function') throw new errorClasses.TypeError('a timer takes a function');
      if (timers >= MAX_TIMERS) throw new errorClasses.RangeError('too many timers are waiting: at most 1000');
      const id = ++lastTimer;
      const pause = min(max(ms > 0 ? ms : 0, repeat ? 1 : 0), MAX_TIMEOUT);
      const fire = () => {
        if (!repeat) endTimer(id);
        try {
          apply(f, undefined, args);
        } catch (thrown) {
          log('error', 'uncaught in a timer: ' + inspect(thrown));
        }
        if (mapHas(running, id)) mapSet(running, id, setTimeout(fire, pause));
        settleSoon();
      };
      mapSet(running, id, setTimeout(fire, pause));
      timers++;
      return id;
    },
    clearTimer: (id) => endTimer(id),

    encodeText: (text) => encodeText(text),
    decodeText(bytes, fatal, stream) {
      const used = typedLength(bytes) - (stream ? unfinished(bytes) : 0);
      let text;
      try {
        text = textDecode(new $TextDecoder('utf-8', { __proto__: null, fatal, ignoreBOM: true }), bytesPart(bytes, 0, used));
      } catch {
        throw new errorClasses.TypeError('the bytes are not UTF-8');
      }
      return [text, used];
    },
    clone(value) {
      try {
        return decode(encode(value));
      } catch (thrown) {
        if (!Refusal.is(thrown)) throw thrown;
        const e = new $Error(cloneMessage(thrown.message));
        hide(e, 'name', 'DataCloneError');
        throw e;
      }
    },
    atob: (text) => characters(() => nativeAtob(text), 'the text is not base64'),
    btoa: (text) => characters(() => nativeBtoa(text), 'the text has characters above U+00FF: encode it first'),
    randomUUID: () => randomUUID(),
    randomBytes(n) {
      if (n < 0 || n > 65536) throw new errorClasses.RangeError('at most 65536 random bytes at once');
      return getRandomValues(new $Uint8Array(n));
    },
    // digest counts like a timer while it is computed: the code that awaits it is not stuck.
    digest(name, bytes) {
      timers++;
      const over = (settle, v) => {
        timers--;
        settle(v);
        settleSoon();
      };
      return new $Promise((resolve, reject) => {
        then(
          subtleDigest(name, bytesCopy(bytes)),
          (buffer) => over(resolve, new $Uint8Array(buffer)),
          (e) => over(reject, e),
        );
      });
    },
    urlClasses: () => ({ __proto__: null, URL: $URL, URLSearchParams: $URLSearchParams }),
  };
}

function endTimer(id) {
  const timer = mapGet(running, id);
  if (timer === undefined) return;
  mapDelete(running, id);
  timers--;
  clearTimeout(timer);
  settleSoon();
}

function characters(f, message) {
  try {
    return f();
  } catch {
    const e = new $Error(message);
    hide(e, 'name', 'InvalidCharacterError');
    throw e;
  }
}

function cloneMessage(message) {
  const text = 'cannot cross the sandbox';
  const at = indexOf(message, text);
  return slice(message, 0, at) + 'cannot be cloned' + slice(message, at + text.length);
}

// unfinished returns the number of bytes at the end that belong to an incomplete character.
function unfinished(bytes) {
  const n = typedLength(bytes);
  for (let back = 1; back < 4 && back <= n; back++) {
    const c = bytes[n - back];
    if (c >= 0x80 && c < 0xc0) continue;
    const size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}
