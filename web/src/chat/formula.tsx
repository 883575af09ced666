import { useEffect, useRef, useState } from "react";

/** A formula: its source until it is drawn, and if it cannot be read. */
export function Formula({ text, isDisplayed }: { text: string; isDisplayed: boolean }) {
  const place = useRef<HTMLSpanElement>(null);
  const [isDrawn, setDrawn] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    const draw = async () => {
      const { formula } = await import("./math");
      if (!isCurrent || !place.current) return;
      place.current.replaceChildren(formula(text, isDisplayed));
      setDrawn(true);
    };
    draw().catch(() => isCurrent && setDrawn(false)); // half a formula, while it streams in
    return () => void (isCurrent = false);
  }, [text, isDisplayed]);
  const mark = isDisplayed ? "$$" : "$";
  return (
    <span className={isDisplayed ? "formula is-displayed" : "formula"} dir="ltr" tabIndex={isDisplayed ? 0 : undefined}>
      <span ref={place} hidden={!isDrawn} />
      {!isDrawn && <code>{mark}{text}{mark}</code>}
    </span>
  );
}
