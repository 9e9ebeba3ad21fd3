// How JSON texts are shown. The approver of a call must see what the tool gets, so nothing is parsed and written anew: that would round numbers
// above 2^53 and drop repeated keys.

/** Indented texts above this length are shown as they are. Deep nesting would make them far longer than the JSON itself. */
const longest = 8 << 20;

/** Writes JSON text with indentation, and what could deceive a reader as escapes. A text that is not JSON keeps its form. */
export function pretty(json: string): string {
  return visible(indent(json));
}

function indent(json: string): string {
  try {
    JSON.parse(json);
  } catch {
    return json;
  }
  const out: string[] = [];
  let length = 0;
  let depth = 0;
  const put = (text: string) => {
    out.push(text);
    length += text.length;
  };
  const line = () => put("\n" + "  ".repeat(depth));
  for (let at = skipSpace(json, 0); at < json.length && length <= longest; ) {
    const token = tokenAt(json, at);
    at = skipSpace(json, at + token.length);
    switch (token) {
      case "{":
      case "[":
        put(token);
        if (json[at] === "}" || json[at] === "]") {
          put(json[at]!);
          at = skipSpace(json, at + 1);
        } else {
          depth++;
          line();
        }
        break;
      case "}":
      case "]":
        depth--;
        line();
        put(token);
        break;
      case ",":
        put(token);
        line();
        break;
      case ":":
        put(": ");
        break;
      default:
        put(token);
    }
  }
  return length > longest ? json : out.join("");
}

function skipSpace(json: string, at: number): number {
  while (at < json.length && " \t\r\n".includes(json[at]!)) at++;
  return at;
}

/** Returns the token that begins at a place of a text that is JSON. */
function tokenAt(json: string, at: number): string {
  let end = at + 1;
  if (json[at] === '"') {
    while (json[end] !== '"') end += json[end] === "\\" ? 2 : 1;
    return json.slice(at, end + 1);
  }
  if ("{}[],:".includes(json[at]!)) return json[at]!;
  while (end < json.length && !"{}[],: \t\r\n".includes(json[end]!)) end++;
  return json.slice(at, end);
}

/** Control characters, and characters that have no width or change the direction of a text. Line ends and tabs are none of them. */
const unseen = /(?![\n\t]|\r\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Writes characters that a reader would not see, or that would change the order of others, as escapes of JSON. */
export function visible(text: string): string {
  return text.replace(unseen, (c) => c.replace(/[^]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0")));
}
