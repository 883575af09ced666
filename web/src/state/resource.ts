/** Data that is loaded from the server, and loaded again when one of its keys changes. */

import { useEffect, useState } from "react";
import { adviceOf } from "../api/client";

export interface Resource<T> {
  /** The last data loaded; kept while the next load is running, and if that fails. */
  data: T | null;
  problem: string;
  isBusy: boolean;
  again: () => void;
  /** Set newer data, such as the response to a write. */
  put: (data: T) => void;
}

/** `pause` is a debounce in milliseconds, for keys that follow typing or a slider. */
export function useResource<T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[], pause = 0): Resource<T> {
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
