// The parts of the language and of Deno that the harness needs, saved before any user code runs. User code
// shares the realm: whatever it does to the built-ins, the harness continues to use these.
import vm from 'node:vm';
import types from 'node:util/types';

const { apply, defineProperty, getOwnPropertyDescriptor, ownKeys, setPrototypeOf } = Reflect;
const { bind, call } = Function.prototype;
const uncurry = bind.bind(call);
const getterOf = (object, name) => uncurry(getOwnPropertyDescriptor(object, name).get);

const host = { ...globalThis.Deno };
const core = globalThis.Deno[globalThis.Deno.internal].core;
const { stdin, stdout } = host;
const read = stdin.read.bind(stdin);
const writeSync = stdout.writeSync.bind(stdout);
const { setImmediate, setTimeout, clearTimeout } = globalThis;

// later runs f in the next turn of the event loop. Deno spreads the arguments of an immediate with an iterator that
// user code may have replaced; f therefore has no arguments.
const later = (f) => {
  setImmediate(f)._argv = undefined;
};

const { SourceTextModule, SyntheticModule } = vm;
const { isProxy, isPromise, isNativeError, isModuleNamespaceObject } = types;
const isKind = {
  map: types.isMap,
  set: types.isSet,
  date: types.isDate,
  regexp: types.isRegExp,
  boxed: types.isBoxedPrimitive,
  symbolObject: types.isSymbolObject,
  anyBuffer: types.isAnyArrayBuffer,
  dataView: types.isDataView,
  arguments: types.isArgumentsObject,
  empty: (v) =>
    types.isWeakMap(v) || types.isWeakSet(v) || types.isGeneratorObject(v) || types.isMapIterator(v) || types.isSetIterator(v) || isOpaque(v),
};

// Weak references, finalization registries and the language's other iterators have no type test: their methods
// serve as one. A method throws when it is called on an object of another type.
const weakRefDeref = uncurry(WeakRef.prototype.deref);
const unregister = uncurry(FinalizationRegistry.prototype.unregister);
const arrayIteratorProto = Object.getPrototypeOf([][Symbol.iterator]());
const helperProto = Object.getPrototypeOf([].values().map((x) => x));
const wrapProto = Object.getPrototypeOf(Iterator.from({ next() {} }));
const iteratorProtos = [arrayIteratorProto, helperProto, wrapProto];
const noToken = {};

function isOpaque(v) {
  const proto = getPrototypeOf(v);
  for (let i = 0; i < iteratorProtos.length; i++) if (proto === iteratorProtos[i]) return true;
  if (proto === objectProto || proto === null) return false;
  try {
    weakRefDeref(v);
    return true;
  } catch {
    // not a weak reference
  }
  try {
    unregister(v, noToken);
    return true;
  } catch {
    return false;
  }
}

const { fromCharCode } = String;
const { isArray } = Array;
const { isFinite, isInteger } = Number;
const { floor, min, max } = Math;
const { now } = Date;
const { resolve: resolvePromise } = Promise;
const objectProto = Object.prototype;
const errorProto = Error.prototype;
const objectCreate = Object.create;
const getPrototypeOf = Object.getPrototypeOf;
const objectKeys = Object.keys;
const hasOwn = Object.hasOwn;
const $Array = Array;
const $ArrayBuffer = ArrayBuffer;
const $BigInt = BigInt;
const $DataView = DataView;
const $Date = Date;
const $Error = Error;
const $Map = Map;
const $Promise = Promise;
const $Proxy = Proxy;
const $Set = Set;
const $String = String;
const $Uint8Array = Uint8Array;
const $RegExp = RegExp;

const errorClasses = { __proto__: null, Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, AggregateError };
const errorProtos = { __proto__: null };
for (const name in errorClasses) errorProtos[name] = errorClasses[name].prototype;

const mapGet = uncurry(Map.prototype.get);
const mapSet = uncurry(Map.prototype.set);
const mapHas = uncurry(Map.prototype.has);
const mapDelete = uncurry(Map.prototype.delete);
const mapEach = uncurry(Map.prototype.forEach);
const mapSize = getterOf(Map.prototype, 'size');
const setAdd = uncurry(Set.prototype.add);
const setHas = uncurry(Set.prototype.has);
const setDelete = uncurry(Set.prototype.delete);
const setEach = uncurry(Set.prototype.forEach);
const setSize = getterOf(Set.prototype, 'size');
const then = uncurry(Promise.prototype.then);
const dateTime = uncurry(Date.prototype.getTime);
const dateText = uncurry(Date.prototype.toISOString);
const regexpText = uncurry(RegExp.prototype.toString);
const bigIntText = uncurry(BigInt.prototype.toString);
const symbolDescription = getterOf(Symbol.prototype, 'description');
const boxValues = [Number, String, Boolean, BigInt].map((c) => uncurry(c.prototype.valueOf));
const charCodeAt = uncurry(String.prototype.charCodeAt);
const indexOf = uncurry(String.prototype.indexOf);
const lastIndexOf = uncurry(String.prototype.lastIndexOf);
const slice = uncurry(String.prototype.slice);
const startsWith = uncurry(String.prototype.startsWith);
const endsWith = uncurry(String.prototype.endsWith);
const padStart = uncurry(String.prototype.padStart);
const toWellFormed = uncurry(String.prototype.toWellFormed);

const typedProto = Object.getPrototypeOf(Uint8Array.prototype);
const typedName = getterOf(typedProto, Symbol.toStringTag);
const typedBuffer = getterOf(typedProto, 'buffer');
const typedOffset = getterOf(typedProto, 'byteOffset');
const typedBytes = getterOf(typedProto, 'byteLength');
const typedLength = getterOf(typedProto, 'length');
const transfer = uncurry(ArrayBuffer.prototype.transfer);
const bytesSet = uncurry(typedProto.set);
// Not subarray or slice, which use the array's constructor to create the result.
const bytesPart = (b, start, end = typedLength(b)) => new $Uint8Array(typedBuffer(b), typedOffset(b) + start, end - start);
const bytesCopy = (b) => {
  const out = new $Uint8Array(typedLength(b));
  bytesSet(out, b);
  return out;
};
const bytesWithin = uncurry(typedProto.copyWithin);
const setFloat64 = uncurry(DataView.prototype.setFloat64);
const getFloat64 = uncurry(DataView.prototype.getFloat64);

const encoder = new TextEncoder();
const encodeInto = encoder.encodeInto.bind(encoder);
const encodeText = encoder.encode.bind(encoder);
const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
const decodeUtf8 = utf8.decode.bind(utf8);
const $TextDecoder = TextDecoder;
const textDecode = uncurry(TextDecoder.prototype.decode);
const $URL = URL;
const $URLSearchParams = URLSearchParams;
const nativeAtob = atob;
const nativeBtoa = btoa;
const randomUUID = crypto.randomUUID.bind(crypto);
const getRandomValues = crypto.getRandomValues.bind(crypto);
const subtleDigest = crypto.subtle.digest.bind(crypto.subtle);

// push appends to a list of the harness, whatever was done to Array.prototype.
const push = (list, v) => {
  defineProperty(list, list.length, { __proto__: null, value: v, writable: true, enumerable: true, configurable: true });
};

// put defines an own property: it neither calls a prototype's setter nor changes a prototype.
const put = (object, name, value) => {
  if (name in object) defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  else object[name] = value;
};

const hide = (object, name, value) =>
  defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });

// The name of this file, to omit the harness's frames from stacks.
const self = import.meta.url;
