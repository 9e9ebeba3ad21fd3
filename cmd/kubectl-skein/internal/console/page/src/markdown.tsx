// Texts of models and people. They are markdown, and never anything that runs.
import { memo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";

const schemes = new Set(["http:", "https:", "mailto:"]);

/** Returns an address that may be opened from a conversation, or undefined. */
export function safeAddress(address: string | undefined): string | undefined {
  if (!address) return undefined;
  try {
    const url = new URL(address);
    return schemes.has(url.protocol) ? url.href : undefined;
  } catch {
    return undefined; // relative addresses would lead to views of the console
  }
}

function Outside({ address, text }: { address: string | undefined; text: React.ReactNode }) {
  const href = safeAddress(address);
  if (!href) return <span>{text}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {text}
    </a>
  );
}

const components: Components = {
  a: ({ href, children }) => <Outside address={href} text={children} />,
  // An image would be read from its server at once, which would tell that server that and by whom the conversation is read.
  img: ({ src, alt }) => <Outside address={typeof src === "string" ? src : undefined} text={`image: ${alt || src || ""}`} />,
  // A conversation has no part in the outline of the page.
  h1: ({ children }) => <p className="heading">{children}</p>,
  h2: ({ children }) => <p className="heading">{children}</p>,
  h3: ({ children }) => <p className="heading">{children}</p>,
  h4: ({ children }) => <p className="heading">{children}</p>,
  h5: ({ children }) => <p className="heading">{children}</p>,
  h6: ({ children }) => <p className="heading">{children}</p>,
  input: ({ checked }) => <span>{checked ? "☑" : "☐"}</span>,
  // The ids of footnotes would be links within the page, which has its own addresses.
  sup: ({ children }) => <sup>{children}</sup>,
};

const plugins = [remarkGfm];

/** Texts above this length are shown as they are, because parsing them would make the page slow. */
const longest = 200_000;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  if (text.length > longest) return <pre className="long">{text}</pre>;
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={plugins} components={components} urlTransform={(url) => safeAddress(url) ?? ""}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
