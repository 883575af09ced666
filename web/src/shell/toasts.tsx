import { dismiss, toasts } from "../state/toasts";
import { useStore } from "../state/store";
import { IconButton } from "./icons";

export function Toasts() {
  const shown = useStore(toasts, (one) => one);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} className={`toast ${toast.isProblem ? "is-problem" : ""}`} style={{ "--seconds": `${toast.seconds}s` } as React.CSSProperties}>
          <span>{toast.text}</span>
          {toast.action && <button type="button" className="link" onClick={toast.action.run}>{toast.action.label}</button>}
          <IconButton icon="close" label="Dismiss" size={14} onClick={() => dismiss(toast.id)} />
        </div>
      ))}
    </div>
  );
}
