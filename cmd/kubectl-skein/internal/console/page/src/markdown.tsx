// Texts of models and people. They are markdown, and never anything that runs.
import { Component, memo, useMemo, useState, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { canParse, longest } from "./limits";
import { Button } from "./ui";

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

interface PlainlyProps {
  text: string;
  children: ReactNode;
}

/** Shows a text as it is when it cannot be shown as markdown, so that one message does not take the others along. */
class Plainly extends Component<PlainlyProps, { text: string; failed: boolean }> {
  state = { text: this.props.text, failed: false };

  static getDerivedStateFromProps({ text }: PlainlyProps, state: { text: string }) {
    return text === state.text ? null : { text, failed: false }; // this one may be shown
  }

  static getDerivedStateFromError() {
    return { failed: true };
  }

  render() {
    return this.state.failed ? <Plain text={this.props.text} /> : this.props.children;
  }
}

function Plain({ text }: { text: string }) {
  return (
    <pre className="long" tabIndex={0} aria-label="Text that is not shown as markdown">
      {text}
    </pre>
  );
}

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const [wanted, setWanted] = useState(false);
  const can = useMemo(() => canParse(text), [text]);
  if (!can) return <Plain text={text} />;
  if (text.length > longest && !wanted) {
    return (
      <>
        <Plain text={text} />
        <Button label="Show as markdown" onClick={() => setWanted(true)} />
      </>
    );
  }
  return (
    <div className="markdown">
      <Plainly text={text}>
        <ReactMarkdown remarkPlugins={plugins} components={components} urlTransform={(url) => safeAddress(url) ?? ""}>
          {text}
        </ReactMarkdown>
      </Plainly>
    </div>
  );
});
