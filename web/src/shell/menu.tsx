import { type KeyboardEvent, useId, useRef } from "react";
import { adjacent } from "../history/focus";
import { Icon, IconButton, type IconName } from "./icons";

export interface MenuItem {
  label: string;
  icon: IconName;
  run: () => void;
  isDanger?: boolean;
}

/** A button with a menu. It is a popover, so the browser closes it on Escape or an outside click. */
export function Menu({ label, items, icon = "more" }: { label: string; items: MenuItem[]; icon?: IconName }) {
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const place = (button: HTMLElement) => {
    const at = button.getBoundingClientRect();
    const style = box.current!.style;
    style.left = `${Math.max(8, Math.min(at.left, innerWidth - 220))}px`;
    style.top = `${Math.min(at.bottom + 4, innerHeight - 40 * items.length - 24)}px`;
  };
  const onKey = (event: KeyboardEvent<HTMLDivElement>) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by && adjacent(event.currentTarget, "button", by)) event.preventDefault();
  };
  return (
    <>
      <IconButton
        icon={icon} label={label} size={16} aria-haspopup="menu" popoverTarget={id}
        onClick={(event) => place(event.currentTarget)}
      />
      <div
        ref={box} id={id} popover="auto" className="menu" role="menu" aria-label={label} onKeyDown={onKey}
        onToggle={(event) => event.newState === "open" && box.current?.querySelector("button")?.focus()}
      >
        {items.map((item) => (
          <button
            key={item.label} type="button" role="menuitem" className={item.isDanger ? "is-danger" : ""}
            onClick={() => {
              box.current?.hidePopover();
              item.run();
            }}
          >
            <Icon name={item.icon} size={16} /> {item.label}
          </button>
        ))}
      </div>
    </>
  );
}
