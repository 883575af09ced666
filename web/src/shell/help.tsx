import { Dialog } from "./dialog";
import { SHORTCUTS } from "./shortcuts";

export function HelpDialog({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  return (
    <Dialog title="Keys" isOpen={isOpen} onClose={onClose}>
      <dl className="keys">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>{keys.split(" ").map((key, at) => (/^[A-Z⌘↑↓/]/.test(key) ? <kbd key={at}>{key}</kbd> : ` ${key} `))}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
