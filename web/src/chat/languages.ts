/** File names for code that is downloaded. Pure. */

const ENDINGS: { [language: string]: string } = {
  bash: "sh", c: "c", cpp: "cpp", csharp: "cs", css: "css", diff: "diff", go: "go", html: "html", java: "java", javascript: "js",
  js: "js", json: "json", jsx: "jsx", kotlin: "kt", markdown: "md", md: "md", mermaid: "mmd", php: "php", python: "py", py: "py",
  ruby: "rb", rust: "rs", sh: "sh", shell: "sh", sql: "sql", svg: "svg.txt", swift: "swift", ts: "ts", tsx: "tsx", typescript: "ts",
  xml: "xml", yaml: "yaml", yml: "yaml",
};

export const fileNameFor = (language?: string) => `code.${ENDINGS[language?.toLowerCase() ?? ""] ?? "txt"}`;
