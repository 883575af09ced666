/** Toasts: short messages at the edge of the page, some with an action. */

import { Store } from "./store";

export interface Toast {
  id: number;
  text: string;
  isProblem: boolean;
  /** How long it stays; a line at its foot shows the time left. */
  seconds: number;
  action?: { label: string; run: () => void };
}

const SECONDS = 6;
let count = 0;
export const toasts = new Store<Toast[]>([]);

export function showMessage(text: string, options: Partial<Omit<Toast, "id" | "text">> & { seconds?: number } = {}): number {
  const { seconds = SECONDS, ...rest } = options;
  const toast: Toast = { id: ++count, text, isProblem: false, seconds, ...rest };
  toasts.set([...toasts.get(), toast]);
  if (seconds > 0) setTimeout(() => dismiss(toast.id), seconds * 1_000);
  return toast.id;
}

export const showError = (text: string) => showMessage(text, { isProblem: true, seconds: 10 });

export function dismiss(id: number): void {
  toasts.set(toasts.get().filter((one) => one.id !== id));
}
