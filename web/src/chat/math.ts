/** Formulas, by KaTeX. A separate chunk, loaded with the first formula. */

import katex from "katex";
import "katex/dist/katex.css";

interface MathNode {
  children?: MathNode[];
  attributes?: { [name: string]: string };
  toNode: () => Element;
}

const OPTIONS = { throwOnError: true, strict: "ignore" as const, trust: false, maxExpand: 200, maxSize: 20 }; // bounds the size of a formula
const treeOf = (katex as unknown as { __renderToDomTree: (text: string, options: object) => MathNode }).__renderToDomTree;

/** Build the elements of a formula. Throws if it cannot be read. */
export function formula(text: string, isDisplayed: boolean): Element {
  const tree = treeOf(text, { ...OPTIONS, displayMode: isDisplayed });
  moveStyles(tree);
  return tree.toNode();
}

/** A formula as MathML, for a page without our scripts and styles. Null if it cannot be read. */
export function mathml(text: string, isDisplayed: boolean): string | null {
  try {
    return katex.renderToString(text, { ...OPTIONS, displayMode: isDisplayed, output: "mathml" });
  } catch {
    return null;
  }
}

/** Set styles as properties: the page's policy refuses style attributes. */
function moveStyles(node: MathNode): void {
  const style = node.attributes?.style;
  if (style) {
    delete node.attributes!.style;
    const make = node.toNode.bind(node);
    node.toNode = () => {
      const element = make();
      (element as HTMLElement | SVGElement).style.cssText = style;
      return element;
    };
  }
  node.children?.forEach(moveStyles);
}
