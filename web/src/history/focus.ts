/** Move the focus to the next or previous element that matches, in visual order. */
export function adjacent(box: HTMLElement, selector: string, by: number): boolean {
  const all = [...box.querySelectorAll<HTMLElement>(selector)].sort(
    (a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top,
  );
  const here = all.findIndex((one) => one === document.activeElement || one.parentElement?.contains(document.activeElement));
  const next = all[here + by];
  next?.focus();
  return next !== undefined;
}
