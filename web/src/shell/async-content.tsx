import type { ReactNode } from "react";
import type { Resource } from "../state/resource";

/** Show a resource: its data, a placeholder while it loads, or the error with a retry button. */
export function AsyncContent<T>({ resource, what, children }: { resource: Resource<T>; what: string; children: (data: NonNullable<T>) => ReactNode }) {
  const { data, problem, isBusy, again } = resource;
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
