/** Names the version of the page that draws diagrams. */
declare const __BUILD__: string;
