// Definition code: any number of invocations share one engine until the manager closes it.

const active = new $Map(); // invocations under way, by request

function isolate(open) {
  let api;
  const wall = open.wall;
  logs.invocation = () => {
    let only = '';
    if (mapSize(active) === 1) mapEach(active, (invocation) => (only = invocation));
    return only;
  };
  logs.most = 10_000; // an isolate lives as long as a run
  logs.mostLength = 8 << 20;
  installConsole();
  const prepared = (async () => {
    const script = new SourceTextModule('export default ' + open.definition, {
      identifier: 'skein:definition',
      importModuleDynamically: (specifier) => importModule('', specifier),
    });
    await link(script, '');
    await script.evaluate();
    api = script.namespace.default(sysOf(decode(open.statics) ?? {}));
  })();

  const settledOf = (id, outcome) => {
    const w = new Writer();
    w.uint(id);
    writeOutcome(w, outcome);
    return w;
  };
  const answer = (id, outcome) => answerWith(id, settledOf(id, outcome));
  const answerWith = (id, w) => {
    mapDelete(active, id);
    if (!send(FRAME.settled, w)) send(FRAME.settled, settledOf(id, failure('RangeError', tooLarge(w))));
  };

  // serve answers a request with the result of f, within the time limit.
  const serve = (id, f) => {
    start();
    let task;
    let clock;
    let over = false;
    const settle = (outcome) => settleWith(settledOf(id, outcome));
    const settleWith = (w) => {
      if (over) return;
      over = true;
      clearTimeout(clock);
      drop(task);
      answerWith(id, w);
    };
    const failed = (thrown) => {
      const said = infoOf(thrown);
      if (isOutOfMemory(said)) return send(FRAME.done, doneOf('memory', failure('InternalError', 'the code ran out of memory')));
      settle({ __proto__: null, error: said });
    };
    if (wall > 0) {
      clock = setTimeout(() => settle(failure('TimeoutError', `the code ran for longer than ${durationText(wall)}, its limit`)), min(wall, MAX_TIMEOUT));
    }
    const done = (value) => {
      let w;
      try {
        w = settledOf(id, { __proto__: null, value });
      } catch (thrown) {
        return Refusal.is(thrown) ? settle(failure('TypeError', thrown.message)) : failed(thrown);
      }
      settleWith(w);
    };
    // Preparation has ended before the first request is read, or is about to end.
    const result = then(prepared, f);
    task = wait(result, done, failed, () => settle(failure('Error', STUCK)));
  };

  const withModule = (id, name, f) =>
    serve(id, async () => {
      const module = await importModule('', './' + name);
      return f(module.namespace);
    });

  return (type, content) => {
    const r = new Reader(content);
    switch (type) {
      case FRAME.describe: {
        const id = r.uint();
        return withModule(id, r.text(), (ns) => api.describe(ns));
      }
      case FRAME.invoke: {
        const id = r.uint();
        const invocation = r.text();
        const name = r.text();
        const args = r.span();
        mapSet(active, id, invocation);
        return withModule(id, name, (ns) => api.invoke(ns, invocation, decode(args)));
      }
      case FRAME.call: {
        const id = r.uint();
        const f = mapGet(refs, r.uint());
        const args = r.span();
        if (f === undefined) return answer(id, failure('ReferenceError', 'the function is gone: what it was handed out for has ended'));
        return serve(id, () => apply(f, undefined, decodeArgs(args)));
      }
    }
    throw new $Error(`frame type ${type} in an isolate`);
  };
}
