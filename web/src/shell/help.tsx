import { Dialog } from "./dialog";
import { SHORTCUTS } from "./shortcuts";

export function HelpDialog({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" isOpen={isOpen} onClose={onClose}>
      <Shortcuts />
    </Dialog>
  );
}

export function Shortcuts() {
  return (
    <dl className="keys">
      {SHORTCUTS.map(([keys, what]) => (
        <div key={what}>
          <dt>{keys.map((key, at) => (/^[a-z]/.test(key) ? <small key={at}> {key} </small> : <kbd key={at}>{key}</kbd>))}</dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}
