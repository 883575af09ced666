import { Icon, type IconName } from "./icons";

/** Something is wrong or missing: what, and what to do about it. */
export function Trouble({
  title, text, action, onAction, icon = "warn", isWhole = true,
}: { title: string; text: string; action?: string; onAction?: () => void; icon?: IconName; isWhole?: boolean }) {
  return (
    <div className={isWhole ? "whole-page trouble" : "trouble"} role="alert">
      <Icon name={icon} size={28} />
      <h1>{title}</h1>
      <p>{text}</p>
      {action && <button type="button" className="button" onClick={onAction}>{action}</button>}
    </div>
  );
}
