import { Icon, type IconName } from "./icons";

/** A message for something that failed or is missing, with an optional action. */
export function ErrorBanner({
  title, text, action, onAction, icon = "warn", isWhole = true,
}: { title: string; text: string; action?: string; onAction?: () => void; icon?: IconName; isWhole?: boolean }) {
  return (
    <div className={isWhole ? "whole-page error-banner" : "error-banner"} role="alert">
      <Icon name={icon} size={28} />
      <h1>{title}</h1>
      <p>{text}</p>
      {action && <button type="button" className="button" onClick={onAction}>{action}</button>}
    </div>
  );
}
