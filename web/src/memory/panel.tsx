/** Memory: what is kept of this conversation beside its turns. */

import { PanelHead } from "../shell/panel-head";

export interface PanelProps {
  conversation: string;
  onClose: () => void;
  /** Show a turn in the thread. */
  onTurn: (turn: string) => void;
}

export function MemoryPanel({ onClose }: PanelProps) {
  return <PanelHead title="Memory" onClose={onClose} />;
}
