/** What the model saw: the prompt of one answer, block by block. */

import { PanelHead } from "../shell/panel-head";

export interface DrawerProps {
  conversation: string;
  /** The answer. */
  turn: string;
  onClose: () => void;
  onTurn: (turn: string) => void;
}

export function SawDrawer({ onClose }: DrawerProps) {
  return <PanelHead title="What the model saw" onClose={onClose} />;
}
