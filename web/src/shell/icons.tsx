/** Icons: strokes on a 20 × 20 grid, in the text colour. */

const PATHS = {
  plus: "M10 4v12M4 10h12",
  search: "M9 3.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11ZM13 13l3.5 3.5",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h9",
  close: "M5 5l10 10M15 5L5 15",
  send: "M10 16V4.5M5 9.2L10 4.2l5 5",
  stop: "M6 6h8v8H6z",
  clip: "M15.5 9.3l-5.8 5.8a3.6 3.6 0 0 1-5.1-5.1l6.2-6.2a2.4 2.4 0 0 1 3.4 3.4L8 13.4a1.2 1.2 0 0 1-1.7-1.7L11.6 6.4",
  copy: "M7.5 7.5h8v8h-8zM12.5 4.5h-8v8",
  check: "M4.5 10.5l3.6 3.6L15.5 6.3",
  redo: "M15.8 8.2A6.2 6.2 0 1 0 16 11.5M16 4.5v4h-4",
  pencil: "M4 16l.8-3.4 8-8a1.7 1.7 0 0 1 2.5 2.5l-8 8L4 16Z",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.7 10h7.6l.7-10M8.5 9v4.5M11.5 9v4.5",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  down: "M5 8l5 5 5-5",
  eye: "M2.5 10s2.8-5 7.5-5 7.5 5 7.5 5-2.8 5-7.5 5-7.5-5-7.5-5ZM10 7.8a2.2 2.2 0 1 1 0 4.4 2.2 2.2 0 0 1 0-4.4Z",
  layers: "M10 3.5l7 3.6-7 3.6-7-3.6 7-3.6ZM3.4 10.4L10 13.8l6.6-3.4M3.4 13.4L10 16.8l6.6-3.4",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  export: "M10 12.5v-9M6.5 7L10 3.5 13.5 7M4 12v4h12v-4",
  tool: "M12.6 3.6a4 4 0 0 0-4.9 5L3.8 12.5a1.9 1.9 0 0 0 2.7 2.7l3.9-3.9a4 4 0 0 0 5-4.9L13 8.8 11.2 7l1.4-3.4Z",
  warn: "M10 3.5L17.5 16h-15L10 3.5ZM10 8.5v3.5M10 14h.01",
  user: "M10 4a3 3 0 1 1 0 6 3 3 0 0 1 0-6ZM4.5 16.5c.6-3 2.8-4.5 5.5-4.5s4.9 1.5 5.5 4.5",
  out: "M11.5 4h-7v12h7M8.5 10h8M13.5 7l3 3-3 3",
  keyboard: "M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M6.5 11.5h7",
  file: "M5 3.5h6.5L15 7v9.5H5zM11.5 3.5V7H15",
  offline: "M3 3l14 14M6 6.5A5 5 0 0 0 5.5 8 3.5 3.5 0 0 0 6 15h8M8.5 4.7A5 5 0 0 1 14.9 9a3 3 0 0 1 1.8 4.7",
  sun: "M10 6.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7ZM10 2v1.5M10 16.5v1.5M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M4.3 15.7l1.1-1.1M14.6 5.4l1.1-1.1",
  moon: "M16 11.8A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.8Z",
  halfmoon: "M10 3.5a6.5 6.5 0 1 1 0 13zM10 3.5a6.5 6.5 0 1 0 0 13",
  pin: "M7 3.5h6l-.6 4.5 2.6 2.5v1.5H5v-1.5L7.6 8 7 3.5ZM10 12v5",
  archive: "M3.5 4.5h13v3.5h-13zM4.5 8v8h11V8M8 11h4",
  up: "M6.5 9v7.5h7.2a1.6 1.6 0 0 0 1.6-1.3l1-5a1.6 1.6 0 0 0-1.6-1.9h-3.5l.6-3.1a1.5 1.5 0 0 0-2.8-1L6.5 9ZM6.5 9H3.5v7.5h3",
  downvote: "M13.5 11V3.5H6.3a1.6 1.6 0 0 0-1.6 1.3l-1 5a1.6 1.6 0 0 0 1.6 1.9h3.5l-.6 3.1a1.5 1.5 0 0 0 2.8 1l2.5-4.8ZM13.5 11h3V3.5h-3",
  share: "M12 4.5h4v4M16 4.5l-6.5 6.5M14.5 12v4h-10V6h4",
  gear: "M10 7.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6ZM10 2.5v2M10 15.5v2M2.5 10h2M15.5 10h2M4.7 4.7l1.4 1.4M13.9 13.9l1.4 1.4M4.7 15.3l1.4-1.4M13.9 6.1l1.4-1.4",
  wrap: "M3.5 5h13M3.5 10h10a2.5 2.5 0 0 1 0 5H10M12 12.8L9.8 15l2.2 2.2M3.5 15h3",
  download: "M10 3.5v9M6.5 9l3.5 3.5L13.5 9M4 16.5h12",
  play: "M6.5 4.5l8.5 5.5-8.5 5.5z",
  image: "M3.5 4.5h13v11h-13zM3.5 13l3.8-3.5 3 2.7 2.5-2.2 3.7 3.3M12.5 7.5h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  const weight = name === "more" ? 2.6 : 1.6;
  return (
    <svg
      className="icon" width={size} height={size} viewBox="0 0 20 20" fill={name === "stop" ? "currentColor" : "none"}
      stroke="currentColor" strokeWidth={weight} strokeLinecap="round" strokeLinejoin="round" aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** A button with only an icon. The label is its accessible name and its tooltip. */
export function IconButton({
  icon, label, size, className = "", ...rest
}: { icon: IconName; label: string; size?: number } & React.ButtonHTMLAttributes<HTMLButtonElement>) {
  return (
    <button type="button" className={`icon-button ${className}`} aria-label={label} title={label} {...rest}>
      <Icon name={icon} size={size} />
    </button>
  );
}
