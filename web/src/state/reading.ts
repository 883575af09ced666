/** Something that is read from the server, and read again when one of its keys has changed. */

import { useEffect, useState } from "react";
import { adviceOf } from "../api/client";

export interface Reading<T> {
  /** The last that was read; it stays while the next is on its way, and when that fails. */
  data: T | null;
  problem: string;
  isBusy: boolean;
  again: () => void;
  /** Somebody has it newer: a write answers what is there after it. */
  put: (data: T) => void;
}

/** `pause`: milliseconds without a change before it is asked, for whatever follows keys or a slider. */
export function useReading<T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[], pause = 0): Reading<T> {
  const [state, setState] = useState<{ data: T | null; problem: string; isBusy: boolean }>({
    data: null, problem: "", isBusy: true,
  });
  const [tries, setTries] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, isBusy: true }));
    const timer = setTimeout(async () => {
      try {
        const data = await load(control.signal);
        if (!control.signal.aborted) setState({ data, problem: "", isBusy: false });
      } catch (problem) {
        if (!control.signal.aborted) setState((before) => ({ ...before, problem: adviceOf(problem), isBusy: false }));
      }
    }, pause);
    return () => (clearTimeout(timer), control.abort());
  }, [...keys, tries]);
  return {
    ...state,
    again: () => setTries((count) => count + 1),
    put: (data) => setState({ data, problem: "", isBusy: false }),
  };
}
