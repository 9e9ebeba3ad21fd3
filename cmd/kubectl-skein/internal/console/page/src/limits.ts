// Which texts are parsed as markdown. A parser that follows the standard takes time that grows with the square of some texts, and more stack than there is
// for others. The texts are those of models and strangers, so one message could keep a whole thread from being read.

/** Texts above this length are shown as they are, until a person wants them as markdown. */
export const longest = 50_000;

/** Texts above this length are shown as they are in any case. */
const longestOfAll = 200_000;

/** Block quotes and lists within each other. */
const deepest = 40;

/** Characters of a paragraph that may begin or end something: the parser looks for the partner of each. */
const mostMarks = 1000;

/** The same in the whole text. */
const mostMarksOfAll = 6000;

/** Lines, where each block quote or list that a line begins counts as one more. */
const mostLines = 3000;

/** Cells of all tables. A row that is too short gets the cells that it lacks. */
const mostCells = 4000;

/** Reports whether a text can be parsed at once. */
export function canParse(text: string): boolean {
  if (text.length > longestOfAll) return false;
  let lines = 0;
  let all = 0;
  let marks = 0; // in the paragraph
  let columns = 0; // of the table
  let cells = 0;
  for (const line of text.split(/\r\n|\r|\n/)) {
    const { begun, deep } = depthOf(line);
    lines += 1 + begun;
    if (!/\S/.test(line)) marks = columns = 0;
    const found = count(line, /\*+|_+|~+|`+|!?\[|\]|<|&|@|https?:|www\./g);
    marks += found;
    all += found;
    columns = Math.max(columns, count(line, /\|/g));
    cells += columns;
    if (deep > deepest || lines > mostLines || marks > mostMarks || all > mostMarksOfAll || cells > mostCells) return false;
  }
  return true;
}

/** Returns how many block quotes and lists a line may be in: `begun` by itself, and `deep` as it is indented. */
function depthOf(line: string): { begun: number; deep: number } {
  let begun = 0;
  let spaces = 0;
  // A sign of a list has white space behind it. Without that, as in a line of dashes, the loop ends.
  for (const [token, sign] of line.matchAll(/(>|(?:[*+-]|\d{1,9}[.)])(?=[ \t]|$))|[ \t]|[^]/g)) {
    if (sign) begun++;
    else if (token === " ") spaces++;
    else if (token === "\t") spaces += 4;
    else break;
  }
  return { begun, deep: begun + Math.floor(spaces / 4) };
}

function count(line: string, pattern: RegExp): number {
  let n = 0;
  for (const _ of line.matchAll(pattern)) n++;
  return n;
}
