import type { ReactNode } from "react";
import type { Reading } from "../state/reading";

/** What was read, or that it is on its way, or why it did not come and what to do. */
export function Shown<T>({ reading, what, children }: { reading: Reading<T>; what: string; children: (data: NonNullable<T>) => ReactNode }) {
  const { data, problem, isBusy, again } = reading;
  if ((data === null || data === undefined) && !problem)
    return <div role="status" aria-label={`Reading ${what}`}>{[85, 60, 70].map((width) => <i key={width} className="ghost" style={{ width: `${width}%` }} />)}</div>;
  return (
    <div aria-busy={isBusy}>
      {problem && (
        <div className="panel-problem" role="alert">
          <p>{problem}</p>
          <button type="button" className="button" onClick={again}>Try again</button>
        </div>
      )}
      {data !== null && data !== undefined && children(data)}
    </div>
  );
}
